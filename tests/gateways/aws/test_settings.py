"""AWS settings: what cannot work is refused when it is built, and secrets stay inside."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from gateways._aws.settings import AwsSettings, Credentials, TransportKind
from pump.errors import ConfigurationError

from .conftest import ACCESS_KEY_ID, SECRET, TOKEN

SECRETS = {"access_key_id": ACCESS_KEY_ID, "secret_access_key": SECRET, "session_token": TOKEN}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("region", " "),
        ("profile", ""),
        ("endpoint_url", "localhost:4566"),
        ("endpoint_url", "ftp://localhost"),
        ("endpoint_url", "http://"),
        ("endpoint_url", "http://localhost:port"),
        ("credentials", "a key"),
        ("transport", "requests"),
        ("max_connections", 1),
        ("max_connections", 2.5),
        ("max_connections", True),
        ("max_attempts", 0),
        ("connect_timeout_s", 0),
        ("connect_timeout_s", "5"),
        ("pool_timeout_s", float("inf")),
        ("pool_timeout_s", float("nan")),
        ("read_timeout_s", 20.0),
    ],
)
def test_when_a_setting_cannot_work_then_building_it_names_the_field(
    field: str, value: object
) -> None:
    """R56."""
    wrong: dict[str, Any] = {field: value}

    with pytest.raises(ConfigurationError) as caught:
        AwsSettings(**wrong)

    assert caught.value.field == f"AwsSettings.{field}"
    assert caught.value.remedy


def test_when_a_profile_and_credentials_are_given_then_one_is_too_many() -> None:
    """R56: the SDK would silently prefer one of them."""
    with pytest.raises(ConfigurationError, match="not both"):
        AwsSettings(profile="work", credentials=Credentials(**SECRETS))


@pytest.mark.parametrize("field", ["access_key_id", "secret_access_key"])
def test_when_half_a_key_is_given_then_it_is_refused_without_showing_the_other(field: str) -> None:
    """R56, R57."""
    with pytest.raises(ConfigurationError) as caught:
        Credentials(**(SECRETS | {field: ""}))

    assert caught.value.field == f"Credentials.{field}"
    assert not any(secret in repr(caught.value) for secret in SECRETS.values())


def test_when_a_url_holds_a_password_then_it_is_refused_without_showing_it() -> None:
    """R57: a URL is printed in many places."""
    with pytest.raises(ConfigurationError) as caught:
        AwsSettings(endpoint_url="https://me:hunter2@sqs.example.com")

    assert "hunter2" not in repr(caught.value) + str(caught.value)


def test_when_settings_are_printed_then_no_secret_is() -> None:
    """R57."""
    settings = AwsSettings(credentials=Credentials(**SECRETS))

    printed = f"{settings!r} {settings} {settings.credentials}"

    assert not any(secret in printed for secret in SECRETS.values())


def test_when_settings_cross_a_process_then_they_still_work() -> None:
    """R57: hidden, not lost."""
    settings = AwsSettings(credentials=Credentials(**SECRETS), transport=TransportKind.BOTO3)

    there = pickle.loads(pickle.dumps(settings))

    assert there == settings
    assert there.credentials.secret_access_key == SECRET


def test_when_the_transport_is_named_in_text_then_it_is_understood() -> None:
    text: Any = "boto3"

    assert AwsSettings(transport=text).transport is TransportKind.BOTO3


@pytest.mark.parametrize(("total", "polls"), [(2, 1), (3, 1), (4, 2), (8, 6), (50, 38)])
def test_when_connections_are_counted_then_a_reserve_is_kept_from_long_polls(
    total: int, polls: int
) -> None:
    """R54: a quarter, but at least two, or all but one."""
    assert AwsSettings(max_connections=total).long_poll_limit == polls

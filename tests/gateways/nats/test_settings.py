"""Settings: right or refused at once, naming the field; secrets out of sight (R56, R57)."""

from __future__ import annotations

import pickle
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, strategies as st

from gateways.nats import NatsGateway, NatsSettings, from_url
from gateways.nats.settings import DEFAULT_PORT
from pump.errors import ConfigurationError

SECRET = "s3cret"


def test_when_nothing_is_said_then_the_server_is_this_machines() -> None:
    assert NatsSettings.from_url("nats://") == NatsSettings()
    assert NatsSettings().target == "nats://localhost:4222"


def test_when_a_url_says_everything_then_the_settings_have_it() -> None:
    settings = NatsSettings.from_url(
        "nats://ada:s3cr%40t@one:4000,[::1]:4001,three?tls=true&tls_ca=/ca&tls_cert=/c&tls_key=/k"
        "&domain=hub&replicas=3&connect_timeout=1.5&request_timeout=2"
    )

    assert settings == NatsSettings(
        hosts=("one:4000", "[::1]:4001", f"three:{DEFAULT_PORT}"),
        user="ada",
        password="s3cr@t",
        tls=True,
        tls_ca_file="/ca",
        tls_cert_file="/c",
        tls_key_file="/k",
        domain="hub",
        replicas=3,
        connect_timeout_s=1.5,
        request_timeout_s=2.0,
    )
    assert settings.api_prefix == "$JS.hub.API"
    assert settings.has_tls


@pytest.mark.parametrize("url", ["nats://s3cret@host", "nats://host?token=s3cret"])
def test_when_a_url_has_a_user_alone_then_it_is_a_token(url: str) -> None:
    assert NatsSettings.from_url(url).token == SECRET


def test_when_a_credentials_file_is_named_then_it_is_used() -> None:
    assert NatsSettings.from_url("nats://host?creds=/a.creds").credentials_file == "/a.creds"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"hosts": ()}, "hosts"),
        ({"hosts": "localhost"}, "hosts"),
        ({"hosts": ("localhost:0",)}, "hosts"),
        ({"hosts": (":4222",)}, "hosts"),
        ({"hosts": ("host:²",)}, "hosts"),
        ({"connect_timeout_s": 0}, "connect_timeout_s"),
        ({"request_timeout_s": float("nan")}, "request_timeout_s"),
        ({"request_timeout_s": float("inf")}, "request_timeout_s"),
        ({"replicas": 0}, "replicas"),
        ({"replicas": 2.5}, "replicas"),
        ({"password": SECRET}, "user"),
        ({"user": "ada", "token": SECRET}, "user"),
        ({"token": SECRET, "credentials_file": "/a"}, "user"),
        ({"tls_cert_file": "/a"}, "tls_cert_file"),
        ({"tls_key_file": "/a"}, "tls_cert_file"),
    ],
)
def test_when_a_setting_is_wrong_then_its_field_is_named(
    fields: dict[str, Any], field: str
) -> None:
    """R56."""
    with pytest.raises(ConfigurationError) as refused:
        NatsSettings(**fields)

    assert refused.value.field == f"NatsSettings.{field}"
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "amqp://host",
        "nats://host/vhost",
        "nats://[::1",
        "nats://host:port",
        "nats://a,,b",
        "nats://host?unknown=1",
        "nats://host?tls=yes",
        "nats://host?replicas=many",
        "nats://host?connect_timeout=soon",
    ],
)
def test_when_a_url_is_wrong_then_it_is_refused_without_its_secrets(url: str) -> None:
    """R56, R57."""
    with pytest.raises(ConfigurationError) as refused:
        NatsSettings.from_url(url.replace("//", "//ada:s3cret@", 1))

    assert SECRET not in f"{refused.value} {refused.value!r} {refused.value.__cause__!r}"


def test_when_a_login_is_repeated_for_each_host_then_no_host_is_dropped() -> None:
    settings = NatsSettings.from_url("nats://ada:s3cret@one,ada:s3cret@two")

    assert settings.hosts == (f"one:{DEFAULT_PORT}", f"two:{DEFAULT_PORT}")
    assert settings.user == "ada"
    assert settings.password == SECRET


@pytest.mark.parametrize(
    "netloc", ["ada:s3cret@one,bob:s3cret@two", "ada:s3cret@one,s3cret@two", "ada:s3@,cret@one"]
)
def test_when_hosts_have_different_logins_then_that_is_refused(netloc: str) -> None:
    """R56, R57: a host or a login that is left out without a word is found by an outage."""
    with pytest.raises(ConfigurationError, match="all hosts take one login") as refused:
        NatsSettings.from_url(f"nats://{netloc}")

    assert SECRET not in f"{refused.value} {refused.value!r}"


@pytest.mark.parametrize("password", ["s3@cret", "s3,cret", "s3:cret"])
def test_when_a_password_has_such_a_character_then_it_is_whole(password: str) -> None:
    settings = NatsSettings.from_url(f"nats://ada:{password}@one,two")

    assert settings.password == password
    assert len(settings.hosts) == 2


@given(st.text(max_size=40))
def test_when_any_text_follows_the_scheme_then_it_is_settings_or_a_configuration_error(
    rest: str,
) -> None:
    with suppress(ConfigurationError):
        NatsSettings.from_url(f"nats://{rest}")


def test_when_settings_are_shown_then_no_secret_is() -> None:
    """R57: nor by the gateway; and they survive a change of process."""
    url = "nats://ada:s3cret@host"
    settings = NatsSettings.from_url(url)

    shown = [repr(settings), repr(from_url(url)), repr(NatsSettings(token=SECRET)), settings.target]

    assert SECRET not in " ".join(shown)
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert isinstance(from_url(url), NatsGateway)

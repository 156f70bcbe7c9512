"""Gateways by URL: what cannot be one is refused, without what may be a secret in it."""

from __future__ import annotations

import pytest

from pump.clock import SYSTEM_CLOCK
from pump.errors import ConfigurationError
from pump.gateway_url import gateway_from_url, without_secrets


@pytest.mark.parametrize(
    "url", ["[", "sqs://[", "amqp://user:hunter2@[::1", "amqp://user:hunter2@ho\u2100st", "", "x"]
)
def test_when_it_is_no_url_then_it_is_refused_and_no_secret_is_repeated(url: str) -> None:
    """R56, R57."""
    with pytest.raises(ConfigurationError) as refused:
        gateway_from_url(url, SYSTEM_CLOCK)

    assert "hunter2" not in f"{refused.value} {refused.value!r}"


def test_when_a_url_is_shown_then_name_password_and_query_are_not() -> None:
    """R57."""
    assert without_secrets("amqp://user:hunter2@host:1/path?token=x") == "amqp://host:1/path"
    assert without_secrets("amqp://user:hunter2@[") == "amqp:…"


@pytest.mark.parametrize(
    "url",
    [
        "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey=hunter2",
        "amqp://user:hunter2/x@host",
        "amqp://user:hunter2?x@host/path",
        "amqp://user:hunter2#x@host",
    ],
)
def test_when_a_secret_is_not_where_it_belongs_then_it_is_not_shown_either(url: str) -> None:
    """R57."""
    assert "hunter2" not in without_secrets(url)


@pytest.mark.parametrize("url", ["memory://", "local:///data/queues", "sqs://eu-west-1", "redis"])
def test_when_there_is_nothing_to_hide_then_it_is_shown_as_it_is(url: str) -> None:
    assert without_secrets(url) == url

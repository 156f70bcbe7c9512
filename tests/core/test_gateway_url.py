"""Gateways by URL: what cannot be one is refused, without what may be a secret in it."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any, cast

import pytest

from gateways.memory import MemoryGateway
from pump import App, gateway_url as module
from pump.clock import SYSTEM_CLOCK
from pump.errors import ConfigurationError
from pump.gateway_url import gateway_from_url, without_secrets
from pump.ports import Gateway


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


def installed(monkeypatch: pytest.MonkeyPatch, value: str, *, name: str = "mine") -> None:
    """Let an entry point of a stranger's package be found."""
    point = EntryPoint(name=name, value=value, group="pumphouse.gateways")
    monkeypatch.setattr(module, "entry_points", lambda group: [point])


def complaint() -> str:
    with pytest.raises(ConfigurationError) as refused:
        gateway_from_url("mine://", SYSTEM_CLOCK)
    return str(refused.value)


def takes_no_clock(url: str) -> object:
    return url


def makes_half_a_gateway(url: str, clock: object) -> object:
    class Half:
        capabilities = None

        async def open(self) -> None: ...

        async def aclose(self) -> None: ...

        def consumer(self, subscription: object) -> None: ...

    return Half()


def test_when_a_strangers_gateway_cannot_be_imported_then_no_extra_of_ours_is_advised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R56: there is no pumphouse[mine]."""
    installed(monkeypatch, "no_such_package.gateway:from_url")

    said = complaint()

    assert "pumphouse[" not in said
    assert "no_such_package.gateway:from_url" in said
    assert "install what it needs" in said


def test_when_a_factory_has_the_wrong_signature_then_it_is_named_with_the_right_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R56."""
    installed(monkeypatch, f"{__name__}:takes_no_clock")

    said = complaint()

    assert "takes_no_clock cannot be called with a URL and a clock" in said
    assert "(url, clock)" in said


def test_when_an_entry_point_is_no_function_then_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R56."""
    installed(monkeypatch, f"{__name__}:__name__")

    assert "is not callable" in complaint()


def test_when_an_object_lacks_members_of_the_port_then_each_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R56."""
    installed(monkeypatch, f"{__name__}:makes_half_a_gateway")

    assert "Half lacks producer, admin" in complaint()


class Odd(MemoryGateway):
    capabilities = "everything"  # type: ignore[assignment]
    consumer = None  # type: ignore[assignment]


def makes_an_odd_gateway(url: str, clock: object) -> object:
    return Odd()


def test_when_a_member_is_not_what_the_port_says_then_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R56."""
    installed(monkeypatch, f"{__name__}:makes_an_odd_gateway")

    assert "of Odd, capabilities, consumer is not what pump.ports.Gateway says" in complaint()


async def makes_it_later(url: str, clock: object) -> object:
    return MemoryGateway()


def test_when_a_factory_must_be_awaited_then_it_is_told_to_be_no_coroutine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R56."""
    installed(monkeypatch, f"{__name__}:makes_it_later")

    assert "define it with def" in complaint()


def test_when_an_app_is_given_what_is_no_gateway_then_what_it_lacks_is_named() -> None:
    """R56."""
    app = App(object())  # type: ignore[arg-type]

    with pytest.raises(ConfigurationError, match="object lacks capabilities, open, aclose"):
        app.built_gateway()


class Delegating:
    """A gateway by what it is wrapped around."""

    def __init__(self, inner: MemoryGateway) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def test_when_a_gateway_delegates_to_another_then_it_is_one() -> None:
    """R56, on every Python: `isinstance` does not see it from 3.12 on."""
    wrapped = Delegating(MemoryGateway())

    assert App(cast("Gateway", wrapped)).built_gateway() is wrapped

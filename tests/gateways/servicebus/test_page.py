"""docs/gateways-servicebus.md repeats the code in several tables; none may drift from it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import attrs
import pytest

import gateways.servicebus
from gateways.servicebus import ServiceBusSettings
from gateways.servicebus.queue_settings import ServiceBusQueueSettings
from gateways.servicebus.wire import (
    ATTEMPTS,
    ATTEMPTS_OF,
    EXACT,
    HANDED_BACK,
    HANDED_BACK_OF,
    STORED_ID,
)
from pump.errors import ConfigurationError, GatewayError, PumpError
from pump.subscription import QueueSpec
from tests.docs.markdown import rows_between, rows_under
from tests.docs.test_gateways_sqs import code_of

PAGE = Path(__file__).resolve().parents[3] / "docs" / "gateways-servicebus.md"


def error_names() -> set[str]:
    """The errors that the gateway's modules name."""
    folder = gateways.servicebus
    modules = [
        import_module(f"{folder.__name__}.{each.name}") for each in iter_modules(folder.__path__)
    ]
    return {
        name
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, PumpError)
    } - {PumpError.__name__, GatewayError.__name__}


def test_every_key_of_the_url_is_documented() -> None:
    with pytest.raises(ConfigurationError) as refused:
        ServiceBusSettings.from_url("sb://shop?unheard-of=1")
    _, _, known = refused.value.remedy.partition("known: ")

    rows = rows_under(PAGE, "## Where it is, and as whom")

    assert [code_of(key)[0] for key, _, _ in rows] == known.split(", ")
    for _, setting, _ in rows:
        name = code_of(setting)[0].removeprefix("ServiceBusSettings.")
        assert name in attrs.fields_dict(ServiceBusSettings)


def test_every_setting_is_documented_with_its_default() -> None:
    documented = {
        code_of(name)[0]: code_of(default)[0]
        for name, default, _ in rows_between(PAGE, "servicebus settings")
    }

    declared = {field.name: repr(field.default) for field in attrs.fields(ServiceBusSettings)}
    assert documented == declared


def test_every_option_of_a_queue_is_documented() -> None:
    with pytest.raises(ConfigurationError) as refused:
        ServiceBusQueueSettings.from_spec(QueueSpec(name="orders", options={"unheard-of": 1}))
    known = refused.value.remedy.removeprefix("this gateway knows ")

    rows = rows_under(PAGE, "### Options")

    assert [code_of(name)[0] for name, _ in rows] == known.split(", ")


def test_every_property_of_ours_is_documented() -> None:
    rows = rows_under(PAGE, "## Other producers and consumers")

    assert [code_of(name)[0] for name, _ in rows] == [
        EXACT,
        STORED_ID,
        ATTEMPTS,
        ATTEMPTS_OF,
        HANDED_BACK,
        HANDED_BACK_OF,
    ]


def test_every_error_is_documented() -> None:
    rows = rows_under(PAGE, "## When something fails")

    assert {code_of(name)[0] for name, _, _ in rows} == error_names()

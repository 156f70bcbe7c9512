"""docs/gateways-sqs.md repeats the code in several tables; none of them may drift from it."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import attrs
import pytest

import gateways._aws
import gateways.sqs
from gateways.sqs import AwsSettings, ClaimCheck, SqsSettings
from gateways.sqs.wire import encode
from pump import App, RejectionReason, Subscription, errors as pump_errors
from pump.errors import ConfigurationError, PumpError
from pump.message import Message

from .markdown import blocks, rows_between, rows_under

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "gateways-sqs.md"


def code_of(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def shown(default: object) -> str:
    """A default as the page writes it."""
    if default is attrs.NOTHING:
        return ""
    if default == AwsSettings():
        return "`AwsSettings()`"
    return f"`{str(default)!r}`" if isinstance(default, str) else f"`{default!r}`"


def error_names() -> set[str]:
    """The errors that the gateway's modules name."""
    modules = [
        import_module(f"{package.__name__}.{each.name}")
        for package in (gateways.sqs, gateways._aws)
        for each in iter_modules(package.__path__)
    ]
    return {
        name
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, PumpError)
    }


def test_every_key_of_the_url_is_documented() -> None:
    """The error of an unknown key lists the known ones, and so does the page."""
    with pytest.raises(ConfigurationError) as refused:
        SqsSettings.from_url("sqs://?unheard-of=1")
    _, _, known = refused.value.remedy.partition("known: ")

    rows = rows_under(PAGE, "## Where it is, and as whom")

    assert [code_of(key)[0] for key, _, _ in rows] == known.split(", ")


def test_the_settings_that_a_key_of_the_url_stands_for_exist() -> None:
    classes = {each.__name__: each for each in (AwsSettings, SqsSettings, ClaimCheck)}

    for _, setting, _ in rows_under(PAGE, "## Where it is, and as whom"):
        owner, _, name = code_of(setting)[0].partition(".")
        assert name in attrs.fields_dict(classes[owner])


@pytest.mark.parametrize(
    ("marker", "settings"),
    [("aws settings", AwsSettings), ("sqs settings", SqsSettings), ("claim check", ClaimCheck)],
)
def test_every_setting_is_documented_with_its_default(marker: str, settings: type) -> None:
    documented = {code_of(name)[0]: default for name, default, _ in rows_between(PAGE, marker)}

    declared = {field.name: shown(field.default) for field in attrs.fields(settings)}
    assert documented == declared


def test_every_member_of_the_packed_attribute_is_documented() -> None:
    """T11: so that programs in other languages can read and write it."""
    message = Message(
        body=b"\0",
        id="i",
        type="t",
        content_type="c",
        correlation_id="c",
        reply_to="r",
        group="g",
        deduplication_id="d",
        created_at_s=1.5,
        headers={"h": "h"},
    )

    written = json.loads(encode(message, is_fifo=True).attribute)

    rows = rows_under(PAGE, "### The wire format")
    assert [code_of(member)[0] for member, _, _ in rows] == list(written)


def test_every_error_of_the_gateway_is_documented_with_its_remedy() -> None:
    rows = rows_under(PAGE, "## When something fails")
    documented = {name for error, _, _ in rows for name in code_of(error)}

    assert error_names() - documented == {"PumpError", "GatewayError"}
    assert all(meaning and remedy for _, meaning, remedy in rows)


def test_every_documented_error_exists() -> None:
    known = error_names() | set(vars(pump_errors))

    for error, _, _ in rows_under(PAGE, "## When something fails"):
        assert set(code_of(error)) <= known


async def test_the_lines_that_move_messages_back_do_so(tmp_path: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "documentation"}
    for block in blocks(PAGE, "python"):
        exec(compile(block, PAGE.name, "exec"), namespace)
    app = App(f"local://{tmp_path}")
    orders = app.subscribe(Subscription(queue="orders", request=bytes, invalid_queue="invalid"))
    async with app, app.consumer(orders) as consumer:
        await app.post(Message(body=b"{}", id="m-1"), queue="orders")
        [delivery] = await consumer.receive()
        await consumer.reject(delivery, RejectionReason.UNACCEPTABLE, "no order")

    assert await namespace["move_back"](app, "invalid", "orders") == 1

    async with app:
        [back] = await app.admin.peek("orders")
        assert (back.id, back.headers["rejectionMessage"]) == ("m-1", "no order")
        assert await app.admin.peek("invalid") == []

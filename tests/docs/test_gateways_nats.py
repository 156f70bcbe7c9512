"""docs/gateways-nats.md repeats the code in several tables; none of them may drift from it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import attrs
import pytest

import gateways.nats
from gateways.nats import NatsSettings
from gateways.nats.connection import PACKAGE, PACKAGES
from gateways.nats.names import MAX_IN_FLIGHT, MINIMUM_SERVER, NATS, SCHEDULING_SERVER
from gateways.nats.queue_settings import NatsQueueSettings
from gateways.nats.wire import HEADER, encode
from pump import errors as pump_errors
from pump.errors import ConfigurationError, PumpError
from pump.message import Message
from pump.subscription import QueueSpec
from tests.brokers.nats_server import NatsServer
from tests.gateways.nats.broker.bench import Bench

from .markdown import rows_between, rows_under
from .test_gateways_sqs import code_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "gateways-nats.md"


def error_names() -> set[str]:
    """The errors that the gateway's modules name."""
    modules = [
        import_module(f"gateways.nats.{each.name}") for each in iter_modules(gateways.nats.__path__)
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
        NatsSettings.from_url("nats://?unheard-of=1")
    _, _, known = refused.value.remedy.partition("known: ")

    rows = rows_under(PAGE, "## Where it is, and as whom")

    assert [code_of(key)[0] for key, _, _ in rows] == known.split(", ")
    for _, setting, _ in rows:
        assert code_of(setting)[0].removeprefix("NatsSettings.") in attrs.fields_dict(NatsSettings)


def test_every_setting_is_documented_with_its_default() -> None:
    documented = {
        code_of(name)[0]: code_of(default)[0]
        for name, default, _ in rows_between(PAGE, "nats settings")
    }

    declared = {field.name: repr(field.default) for field in attrs.fields(NatsSettings)}
    assert documented == declared


def test_every_option_of_a_queue_is_documented() -> None:
    with pytest.raises(ConfigurationError) as refused:
        NatsQueueSettings.from_spec(QueueSpec(name="orders", options={"unheard-of": 1}))
    known = refused.value.remedy.removeprefix("this gateway knows ")

    rows = rows_under(PAGE, "## Queues and their options")

    assert [code_of(name)[0] for name, _ in rows] == known.split(", ")


def test_every_member_of_the_packed_header_is_documented() -> None:
    """So that programs in other languages can read and write it."""
    message = Message(
        body=b"",
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

    written = json.loads(encode(message, stream="s")[HEADER])

    rows = rows_under(PAGE, "### The wire format")
    assert [code_of(member)[0] for member, _, _ in rows] == list(written)


def test_every_error_of_the_gateway_is_documented_with_its_remedy() -> None:
    rows = rows_under(PAGE, "## When something fails")
    documented = {name for error, _, _ in rows for name in code_of(error)}

    assert error_names() - documented == {"PumpError", "GatewayError"}
    assert documented <= error_names() | set(vars(pump_errors))
    assert all(meaning and remedy for _, meaning, remedy in rows)


def test_every_number_of_the_code_that_the_text_repeats_is_right() -> None:
    text = " ".join(PAGE.read_text().split())

    assert f"nats-server {'.'.join(map(str, MINIMUM_SERVER))} or later" in text
    assert f"nats-server {'.'.join(map(str, SCHEDULING_SERVER))}" in text
    assert f"nats-py {PACKAGES.versions[PACKAGE].removeprefix('>=')} or later" in text
    assert f"asks for up to {NATS.receive_batch} messages" in text
    assert f"up to {MAX_IN_FLIGHT} (or 4 MiB) ahead" in text


@pytest.mark.broker
async def test_the_permissions_on_the_page_are_enough(
    own_nats: Callable[..., NatsServer],
) -> None:
    found = re.search(r"<!-- permissions -->\n```conf\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    assert found is not None
    server = own_nats(
        f"authorization {{ users: [{{ user: shop, password: p, permissions: {{\n{found[1]}}} }}] }}"
    )
    bench = Bench(server.url.replace("//", "//shop:p@"), "orders")
    async with bench.client(options={"sessions": True}) as consumer:
        await bench.send(None, "free")
        await bench.send("a", "in a group")
        async with bench.gateway() as gateway:
            later = Message(body=b"", id="later")
            await gateway.producer("orders").send([later], delay_s=0.1)

        received = [*await consumer.receive(5), *await consumer.receive(5)]
        for each in received:
            await consumer.ack(each)
        session = await consumer.accept_session()
        assert session is not None
        received += await session.receive()
        await session.aclose()

    assert [each.message.id for each in received] == ["free", "later", "in a group"]

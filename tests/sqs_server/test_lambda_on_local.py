"""Both directions at once: `pump local` feeds a queue to a Pumphouse app behind Lambda (R46)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import aioboto3
import pytest

from gateways.sqs import AwsSettings, Credentials, SqsGateway, SqsSettings, TransportKind
from gateways.sqs_server.server import SqsServer
from pump import App, Backoff, Command, InvalidMessage, Subscription, headers, hybrid
from pump.clock import SYSTEM_CLOCK
from pump.serving import ServerOptions

from . import lambda_function

CONFIG = """
[queues.orders]
visibility_timeout = "30s"

[queues.orders-dead]
[queues.orders-invalid]

[queues."line.fifo"]
visibility_timeout = "30s"

[[mappings]]
queue = "orders"
function = "tests.sqs_server.lambda_function:handler"
report_batch_item_failures = true
timeout = "20s"
reload = false

[[mappings]]
queue = "line.fifo"
function = "tests.sqs_server.lambda_function:handler"
report_batch_item_failures = true
timeout = "20s"
reload = false
"""


class PlaceOrder(Command):
    name: str


@asynccontextmanager
async def serving(tmp_path: Path) -> AsyncIterator[SqsServer]:
    config = tmp_path / "local.toml"
    await asyncio.to_thread(config.write_text, CONFIG)
    server = SqsServer(ServerOptions(port=0, config=config))
    await server.open()
    try:
        yield server
    finally:
        await server.aclose()


def make_app(endpoint: str, transport: TransportKind) -> tuple[App, list[str]]:
    """An app that fails, refuses or places orders by their name, and what it did."""
    done: list[str] = []
    aws = AwsSettings(
        region="us-east-1",
        endpoint_url=endpoint,
        transport=transport,
        credentials=Credentials(access_key_id="any", secret_access_key="any"),
    )
    app = App(SqsGateway(SqsSettings(aws=aws)))

    @app.handler
    async def place(order: PlaceOrder) -> None:
        if order.name == "impossible":
            raise InvalidMessage("there is no such thing")
        if order.name == "doomed" or (order.name == "unlucky" and "failed unlucky" not in done):
            done.append(f"failed {order.name}")
            raise ValueError(order.name)
        done.append(order.name)

    for queue in ("orders", "line.fifo"):
        app.subscribe(
            Subscription(
                queue=queue,
                request=PlaceOrder,
                dead_letter_queue="orders-dead" if queue == "orders" else None,
                invalid_queue="orders-invalid" if queue == "orders" else None,
                failure=hybrid(1, backoff=Backoff(initial=timedelta(0), maximum=timedelta(0))),
                make_channels="assume",
            )
        )
    return app, done


async def until_drained(server: SqsServer, queue: str) -> None:
    async with SYSTEM_CLOCK.timeout(15):
        while any(each.visible + each.in_flight for each in server.queues() if each.name == queue):
            await SYSTEM_CLOCK.sleep(0.05)


@pytest.mark.parametrize("transport", TransportKind)
async def test_when_a_mapping_invokes_an_app_then_each_message_has_its_own_fate(
    tmp_path: Path, transport: TransportKind
) -> None:
    """R46, R21: placed, tried again, dead-lettered with its reason, refused with its reason."""
    async with serving(tmp_path) as server:
        app, done = make_app(server.endpoint, transport)
        handler = app.lambda_handler()
        lambda_function.be(handler)
        async with aioboto3.Session("any", "any", region_name="us-east-1").client(
            "sqs", endpoint_url=server.endpoint
        ) as sqs:
            url = (await sqs.get_queue_url(QueueName="orders"))["QueueUrl"]
            names = ["good", "unlucky", "impossible", "doomed"]
            entries = [{"Id": name, "MessageBody": json.dumps({"name": name})} for name in names]
            await sqs.send_message_batch(QueueUrl=url, Entries=entries)
            await until_drained(server, "orders")
            dead = await receive_one(sqs, "orders-dead")
            invalid = await receive_one(sqs, "orders-invalid")
        await asyncio.to_thread(handler.close)

    assert sorted(done) == ["failed doomed", "failed doomed", "failed unlucky", "good", "unlucky"]
    assert json.loads(dead["Body"]) == {"name": "doomed"}
    assert headers_of(dead)[headers.ORIGINAL_TOPIC] == "orders"
    assert json.loads(invalid["Body"]) == {"name": "impossible"}
    assert headers_of(invalid)[headers.REJECTION_DETAIL] == "there is no such thing"


async def test_when_the_head_of_a_fifo_group_fails_then_nothing_passes_it(tmp_path: Path) -> None:
    """R46: the rest of its group comes again after it, in order."""
    async with serving(tmp_path) as server:
        app, done = make_app(server.endpoint, TransportKind.AIOBOTO3)
        handler = app.lambda_handler()
        lambda_function.be(handler)
        async with aioboto3.Session("any", "any", region_name="us-east-1").client(
            "sqs", endpoint_url=server.endpoint
        ) as sqs:
            url = (await sqs.get_queue_url(QueueName="line.fifo"))["QueueUrl"]
            entries = [
                {
                    "Id": str(n),
                    "MessageBody": json.dumps({"name": name}),
                    "MessageGroupId": "g",
                    "MessageDeduplicationId": str(n),
                }
                for n, name in enumerate(["first", "unlucky", "third", "fourth"])
            ]
            await sqs.send_message_batch(QueueUrl=url, Entries=entries)
            await until_drained(server, "line.fifo")
        await asyncio.to_thread(handler.close)

    assert done == ["first", "failed unlucky", "unlucky", "third", "fourth"]


async def receive_one(sqs: Any, queue: str) -> dict[str, Any]:
    url = (await sqs.get_queue_url(QueueName=queue))["QueueUrl"]
    answer = await sqs.receive_message(
        QueueUrl=url, WaitTimeSeconds=2, MessageAttributeNames=["All"]
    )
    [message] = answer["Messages"]
    return dict(message)


def headers_of(message: dict[str, Any]) -> dict[str, str]:
    packed = json.loads(message["MessageAttributes"]["pump"]["StringValue"])
    return dict(packed["h"])

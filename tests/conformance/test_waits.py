"""How exactly an empty receive keeps its time on each real server (R4).

Measured, not asserted: a busy machine decides nothing. `titles.MEASURED_WAITS` has what a run said:

    python -m pytest -s -m "broker and slow" tests/conformance/test_waits.py
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from gateways.local import LocalGateway
from gateways.nats import NatsGateway, NatsSettings
from gateways.rabbitmq import RabbitMQGateway, RabbitMQSettings
from gateways.s3 import Layout, S3Gateway, TransportKind
from gateways.servicebus import ServiceBusGateway, ServiceBusSettings
from gateways.sqs import SqsGateway
from pump import Subscription
from pump.clock import SYSTEM_CLOCK
from pump.message import new_id
from pump.ports import Gateway
from tests.brokers.aws_account import AwsAccount
from tests.brokers.nats_server import NatsServer
from tests.brokers.servicebus_peer.process import ServiceBusPeer
from tests.contract.s3_rigs import s3_account, settings_of  # noqa: F401
from tests.contract.sqs_rigs import sqs_settings

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(180)]

WAITS_S = (0.0, 0.05, 0.75, 1.25)
TIMES = 3


def local(request: pytest.FixtureRequest) -> Gateway:
    folder: Path = request.getfixturevalue("tmp_path")
    return LocalGateway(folder / "queues.db")


def nats(request: pytest.FixtureRequest) -> Gateway:
    server: NatsServer = request.getfixturevalue("nats")
    return NatsGateway(NatsSettings.from_url(server.url))


def rabbitmq(request: pytest.FixtureRequest) -> Gateway:
    return RabbitMQGateway(RabbitMQSettings.from_url(request.getfixturevalue("rabbitmq_url")))


def servicebus(request: pytest.FixtureRequest) -> Gateway:
    peer: ServiceBusPeer = request.getfixturevalue("servicebus")
    text = peer.connection_string()
    return ServiceBusGateway(
        ServiceBusSettings.from_connection_string(text, admin_port=peer.http_port)
    )


def pump_local(request: pytest.FixtureRequest) -> Gateway:
    account: AwsAccount = request.getfixturevalue("local_aws")
    return SqsGateway(sqs_settings(account, TransportKind.LEAN))


def sqs(request: pytest.FixtureRequest) -> Gateway:
    account: AwsAccount = request.getfixturevalue("aws")
    return SqsGateway(sqs_settings(account, TransportKind.LEAN))


@pytest.fixture(
    params=[local, nats, rabbitmq, servicebus, pump_local, sqs], ids=lambda make: make.__name__
)
def gateway(request: pytest.FixtureRequest) -> Gateway:
    """Made before the loop runs: a server takes its time to start."""
    made: Gateway = request.param(request)
    return made


async def test_when_a_queue_is_empty_then_how_exactly_a_receive_waits_is_measured(
    gateway: Gateway,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
) -> None:
    """R4, T12."""
    await gateway.open()
    try:
        off_s = await measured(gateway)
    finally:
        await gateway.aclose()

    report(request.node.name, off_s, record_property)


@pytest.mark.parametrize("layout", [Layout.LEASES, Layout.LOG], ids=lambda layout: layout.value)
async def test_when_an_s3_queue_is_empty_then_how_exactly_a_receive_waits_is_measured(
    request: pytest.FixtureRequest,
    s3_account: AwsAccount,  # noqa: F811
    layout: Layout,
    record_property: Callable[[str, object], None],
) -> None:
    """R4."""
    gateway = S3Gateway(settings_of(s3_account, TransportKind.LEAN, layout), SYSTEM_CLOCK)
    await gateway.open()
    try:
        off_s = await measured(gateway)
    finally:
        await gateway.aclose()

    report(request.node.name, off_s, record_property)


async def measured(gateway: Gateway) -> list[float]:
    """By how much each receive of an empty queue was late; early ones are negative."""
    subscription = Subscription(
        queue=f"waits-{new_id()}", request=dict, lease=timedelta(seconds=30)
    )
    for spec in subscription.queue_specs():
        await gateway.admin().ensure(spec, subscription.make_channels)
    consumer = gateway.consumer(subscription)
    # The first connects.
    await consumer.receive(max_count=1, wait_s=0.0)
    off_s: list[float] = []
    for wait_s in WAITS_S:
        for _ in range(TIMES):
            began_s = SYSTEM_CLOCK.now_s()
            assert not await consumer.receive(max_count=1, wait_s=wait_s)
            off_s.append(SYSTEM_CLOCK.now_s() - began_s - wait_s)
    await consumer.aclose()
    return off_s


def report(name: str, off_s: list[float], record: Callable[[str, object], None]) -> None:
    """Print it, for whoever looks, and record it."""
    said = f"{min(off_s) * 1000:+.0f} … {max(off_s) * 1000:+.0f} ms"
    record("R4", said)
    print(f"R4 {name}: {said}")
    # What is far beyond any machine's load.
    assert min(off_s) > -0.5
    assert max(off_s) < 10.0

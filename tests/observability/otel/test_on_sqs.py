"""On SQS: the same connected trace, through LocalStack's queues and attributes."""

from __future__ import annotations

import pytest

from gateways.sqs import SqsGateway, TransportKind
from pump.clock import SYSTEM_CLOCK
from pump.observability.otel import OpenTelemetry
from tests.brokers.aws_account import AwsAccount
from tests.contract.sqs_rigs import sqs_settings

from .shop import PlaceOrder, Shop, Spans, id_of, parent_of, trace_of

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]


@pytest.mark.parametrize("transport", list(TransportKind))
async def test_when_a_handler_posts_on_sqs_then_both_messages_are_one_connected_trace(
    aws: AwsAccount, transport: TransportKind, spans: Spans
) -> None:
    """R59."""
    gateway = SqsGateway(sqs_settings(aws, transport), SYSTEM_CLOCK)
    telemetry = OpenTelemetry(tracer_provider=spans.provider)
    shop = Shop(gateway, telemetry)

    async with shop.open() as dispatcher:
        await shop.app.post(PlaceOrder(order=1))
        await dispatcher.wait_until_empty()

    posted, placed = spans.one("send orders"), spans.one("process orders")
    passed_on, shipped = spans.one("send parcels"), spans.one("process parcels")
    assert parent_of(placed) == id_of(posted)
    assert parent_of(passed_on) == id_of(placed)
    assert parent_of(shipped) == id_of(passed_on)
    assert {trace_of(each) for each in spans.all()} == {trace_of(posted)}
    assert {(each.attributes or {})["messaging.system"] for each in spans.all()} == {"aws_sqs"}
    assert shop.app.counters.value("queue_messages_sent", queue="orders") == 1
    assert shop.app.counters.value("pump_messages_completed") == 2

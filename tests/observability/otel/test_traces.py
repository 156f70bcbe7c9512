"""Traces: one connected trace from the first post to the last handler, and links for batches."""

from __future__ import annotations

from pathlib import Path

import pytest
from opentelemetry.trace import SpanKind

from pump import App, Event, Subscription
from pump.observability.otel import OpenTelemetry
from pump.stores.spill import MemorySpill
from tests.core.rig import Rig

from .shop import PlaceOrder, Shop, Spans, id_of, linked_from, parent_of, trace_of


@pytest.fixture(params=["memory", "local"])
def gateway(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"local://{tmp_path}/queues"


async def test_when_a_handler_posts_then_both_messages_are_one_connected_trace(
    gateway: str, spans: Spans, tracing: OpenTelemetry
) -> None:
    """R59: post → receive → handler → post → receive → handler."""
    shop = Shop(gateway, tracing)

    async with shop.open() as dispatcher:
        await shop.app.post(PlaceOrder(order=1))
        await dispatcher.wait_until_empty()

    assert shop.shipped == [1]
    posted, placed = spans.one("send orders"), spans.one("process orders")
    passed_on, shipped = spans.one("send parcels"), spans.one("process parcels")
    assert parent_of(posted) is None
    assert parent_of(placed) == id_of(posted)
    assert parent_of(passed_on) == id_of(placed)
    assert parent_of(shipped) == id_of(passed_on)
    for queue, sender in (("orders", posted), ("parcels", passed_on)):
        for operation in ("receive", "settle"):
            span = spans.one(f"{operation} {queue}")
            assert parent_of(span) == id_of(sender)
            assert linked_from(span) == [id_of(sender)]
    assert {trace_of(each) for each in spans.all()} == {trace_of(posted)}
    assert len(spans.all()) == 8


async def test_when_a_message_is_traced_then_its_spans_follow_the_messaging_conventions(
    gateway: str, spans: Spans, tracing: OpenTelemetry
) -> None:
    """R59."""
    shop = Shop(gateway, tracing)

    async with shop.open() as dispatcher:
        id_ = await shop.app.post(PlaceOrder(order=1), correlation_id="c-1")
        await dispatcher.wait_until_empty()

    system = "pumphouse_memory" if gateway == "memory://" else "pumphouse_local"
    kinds = {
        "send": SpanKind.PRODUCER,
        "receive": SpanKind.CLIENT,
        "process": SpanKind.CONSUMER,
        "settle": SpanKind.CLIENT,
    }
    for operation, kind in kinds.items():
        span = spans.one(f"{operation} orders")
        found = dict(span.attributes or {})
        assert span.kind is kind
        assert found.pop("messaging.system") == system
        assert found.pop("messaging.destination.name") == "orders"
        assert found.pop("messaging.operation.name") == operation
        assert found.pop("messaging.operation.type") == operation
        assert found.pop("messaging.message.id") == id_
        assert found.pop("messaging.message.conversation_id") == "c-1"
        assert found.pop("messaging.message.body.size") == len(b'{"order":1}')
        assert found.pop("pumphouse.message.type") == "PlaceOrder"
        if operation == "process":
            assert found.pop("pumphouse.attempt") == 1
            assert found.pop("pumphouse.outcome") == "ack"
        assert found == {}
        assert span.status.is_unset


async def test_when_a_handler_blocks_in_a_thread_then_its_spans_belong_to_the_message(
    spans: Spans, tracing: OpenTelemetry
) -> None:
    """R59."""
    app = App("memory://", telemetry=tracing, spill=MemorySpill())
    tracer = spans.provider.get_tracer("shop")

    def place(request: PlaceOrder) -> None:
        with tracer.start_as_current_span("own work"):
            pass

    app.register(PlaceOrder, place)
    app.subscribe(Subscription(queue="orders", request=PlaceOrder, dead_letter_queue="dead"))

    async with app, app.pumping() as dispatcher:
        await app.post(PlaceOrder())
        await dispatcher.wait_until_empty()

    assert parent_of(spans.one("own work")) == id_of(spans.one("process orders"))


class OrderPlaced(Event):
    """What two handlers hear of."""


async def test_when_an_event_has_several_handlers_then_all_work_inside_its_one_span(
    spans: Spans, tracing: OpenTelemetry
) -> None:
    """R59."""
    app = App("memory://", telemetry=tracing, spill=MemorySpill())
    app.route(PlaceOrder, "orders")

    async def first(event: OrderPlaced) -> None:
        await app.post(PlaceOrder(), queue="events-dead")

    async def second(event: OrderPlaced) -> None:
        await app.post(PlaceOrder(), queue="events-dead")

    app.register(OrderPlaced, first)
    app.register(OrderPlaced, second)
    app.subscribe(
        Subscription(queue="events", request=OrderPlaced, dead_letter_queue="events-dead")
    )

    async with app, app.pumping() as dispatcher:
        await app.post(OrderPlaced())
        await dispatcher.wait_until_empty()

    handled = id_of(spans.one("process events"))
    assert [parent_of(each) for each in spans.named("send events-dead")] == [handled, handled]


# -- batches -----------------------------------------------------------------------------------


async def test_when_many_are_posted_at_once_then_each_has_a_context_of_its_own_and_the_send_links(
    spans: Spans, tracing: OpenTelemetry
) -> None:
    """R59: links for batches."""
    shop = Shop("memory://", tracing)

    async with shop.open() as dispatcher:
        await shop.app.post_all([PlaceOrder(order=n) for n in range(3)])
        await dispatcher.wait_until_empty()

    created = spans.named("create orders")
    sent = spans.one("send orders")
    assert [each.kind for each in created] == [SpanKind.PRODUCER] * 3
    assert sent.kind is SpanKind.CLIENT
    assert (sent.attributes or {})["messaging.batch.message_count"] == 3
    assert linked_from(sent) == [id_of(each) for each in created]
    handled = spans.named("process orders")
    assert [parent_of(each) for each in handled] == [id_of(each) for each in created]


async def test_when_messages_of_several_traces_are_received_and_settled_together_then_links_say_so(
    spans: Spans, tracing: OpenTelemetry
) -> None:
    """R59: links for batches."""
    rig = Rig(concurrency=3)
    rig.app.telemetry = tracing
    async with rig:
        await rig.send(1, 2, 3)
        await rig.start()

        await rig.finish()

    senders = [id_of(each) for each in spans.named("send orders")]
    assert len({trace_of(each) for each in spans.named("send orders")}) == 3
    received, settled = spans.one("receive orders"), spans.one("settle orders")
    for span in (received, settled):
        assert parent_of(span) is None
        assert linked_from(span) == senders
        assert (span.attributes or {})["messaging.batch.message_count"] == 3
    assert [parent_of(each) for each in spans.named("process orders")] == senders


async def test_when_a_receive_comes_back_empty_then_there_is_no_span(
    spans: Spans, tracing: OpenTelemetry
) -> None:
    rig = Rig()
    rig.app.telemetry = tracing
    async with rig:
        await rig.start()
        await rig.clock.advance(60)

        await rig.finish()

    assert rig.record.calls["receive"] > 1
    assert spans.all() == ()


async def test_when_a_receive_took_a_while_then_its_span_did_too(
    spans: Spans, tracing: OpenTelemetry
) -> None:
    rig = Rig()
    rig.app.telemetry = tracing
    async with rig:
        await rig.start()
        await rig.clock.advance(7)
        await rig.send(1)
        await rig.clock.settle()

        await rig.finish()

    received = spans.one("receive orders")
    assert received.start_time is not None
    assert received.end_time is not None
    assert (received.end_time - received.start_time) / 1e9 == pytest.approx(7, abs=0.001)

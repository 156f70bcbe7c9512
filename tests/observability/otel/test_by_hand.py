"""Consumers by hand and sessions: their receives and settlements are traced and counted too."""

from __future__ import annotations

import pytest

from pump.errors import ConnectionFailed, InvalidReceipt, SessionLockLost
from pump.observability.metrics import Metrics
from pump.observability.otel import OpenTelemetry
from tests.core.rig import Rig
from tests.core.session_bench import Bench

from .shop import Spans, id_of, linked_from


async def test_when_messages_are_settled_by_hand_then_each_fate_is_counted() -> None:
    """R60."""
    rig = Rig()
    rig.app.telemetry = Metrics()
    counters = rig.app.counters
    async with rig, rig.app.consumer(rig.subscription) as consumer:
        await rig.send(1, 2, 3, 4)
        first, second, third, fourth = await consumer.receive(4)

        await consumer.extend(first)
        await consumer.ack(first)
        await consumer.defer(second)
        await consumer.reject(third)
        await consumer.abandon(fourth)

        assert counters.value("queue_messages_received", queue="orders") == 4
        # Before its copy is sent, a rejected message is held as well.
        assert counters.value("pump_lease_extensions", queue="orders") == 2
        assert counters.value("pump_messages_completed", queue="orders") == 1
        assert counters.value("pump_messages_retried", queue="orders") == 1
        assert counters.value("pump_messages_rejected", reason="DeliveryError") == 1
        assert counters.value("pump_messages_released", queue="orders") == 1

        [again] = await consumer.receive(1)
        await rig.clock.advance(31)
        with pytest.raises(InvalidReceipt):
            await consumer.ack(again)
        assert counters.value("pump_leases_lost", queue="orders") == 1
        assert counters.value("pump_messages_completed", queue="orders") == 1


async def test_when_calls_by_hand_fail_then_they_are_counted_by_type() -> None:
    """R60: errors by type."""
    rig = Rig()
    rig.app.telemetry = Metrics()
    async with rig, rig.app.consumer(rig.subscription) as consumer:
        await rig.send(1)
        [delivery] = await consumer.receive(1)
        for operation in ("receive", "extend", "settle"):
            rig.gateway.fail(operation, ConnectionFailed("broker", "gone"), times=1)
        for call in (consumer.receive(1), consumer.extend(delivery), consumer.ack(delivery)):
            with pytest.raises(ConnectionFailed):
                await call

        for operation in ("receive", "extend", "settle"):
            errors = rig.app.counters.value(
                "pump_errors", operation=operation, error_type="ConnectionFailed"
            )
            assert errors == 1


async def test_when_a_message_is_received_and_acked_by_hand_then_spans_link_to_its_sender(
    spans: Spans, tracing: OpenTelemetry
) -> None:
    """R59."""
    rig = Rig()
    rig.app.telemetry = tracing
    async with rig, rig.app.consumer(rig.subscription) as consumer:
        await rig.send(1)
        [delivery] = await consumer.receive(1)
        await consumer.ack(delivery)

    sender = id_of(spans.one("send orders"))
    assert linked_from(spans.one("receive orders")) == [sender]
    assert linked_from(spans.one("settle orders")) == [sender]


async def test_when_a_session_is_worked_off_then_it_is_counted_and_traced(spans: Spans) -> None:
    """R59, R60."""
    bench = Bench()
    bench.app.telemetry = OpenTelemetry(tracer_provider=spans.provider)
    counters = bench.app.counters
    bench.gateway.put("ada", "a1", "a2", "a3", "a4")
    async with (
        bench.app,
        bench.app.consumer(bench.subscription()) as consumer,
        await consumer.accept_session("ada") as session,
    ):
        first, second, third, _ = await session.receive(4)
        await session.renew()
        await session.ack(first)
        await session.reject(second)
        await session.defer(third)

    assert counters.value("queue_messages_received", queue="orders") == 4
    assert counters.value("pump_messages_completed", queue="orders") == 1
    assert counters.value("pump_messages_rejected", reason="DeliveryError") == 1
    assert counters.value("pump_messages_retried", queue="orders") == 1
    # What came after the deferred one is handed back with it.
    assert counters.value("pump_messages_released", queue="orders") == 1
    # One of them before the copy of the rejected message is sent.
    assert counters.value("pump_lease_extensions", queue="orders") == 2
    assert len(spans.named("settle orders")) == 3
    [received] = spans.named("receive orders")
    assert (received.attributes or {})["messaging.batch.message_count"] == 4


async def test_when_the_lock_of_a_session_is_lost_then_the_settlement_counts_as_lost() -> None:
    """R60."""
    bench = Bench()
    bench.app.telemetry = Metrics()
    bench.gateway.put("ada", "a1")
    async with (
        bench.app,
        bench.app.consumer(bench.subscription()) as consumer,
        await consumer.accept_session("ada") as session,
    ):
        [delivery] = await session.receive(1)
        bench.gateway.break_lock("ada")
        with pytest.raises(SessionLockLost):
            await session.ack(delivery)

    assert bench.app.counters.value("pump_leases_lost", queue="orders") == 1
    assert bench.app.counters.value("pump_messages_completed", queue="orders") == 0

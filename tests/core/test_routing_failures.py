"""Rejection when the way is blocked: the three policies, and a spill that fails (T1, R32)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
import structlog.testing

from pump import headers
from pump.backoff import Backoff
from pump.errors import (
    AccessDenied,
    ConfigurationError,
    ConnectionFailed,
    MessageTooLarge,
    QueueNotFound,
    SendFailed,
    Throttled,
)
from pump.outcome import ACK, Defer
from pump.subscription import dead_letter, hybrid
from pump.testing.builders import a_delivery, a_message

from .routing_bench import DELIVERY_ERROR, Bench, BrokenSpill

FAILURES = [
    ConnectionFailed("dead", "away"),
    Throttled("dead"),
    QueueNotFound("dead"),
    AccessDenied("dead", "send"),
    MessageTooLarge("dead", 10, 5),
    SendFailed("dead", (("m-1", Throttled("dead")),)),
    OSError("network unreachable"),
    ConfigurationError("producer", None, "a queue that cannot be built"),
    TypeError("a defect of a gateway"),
]


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
async def test_when_routing_fails_then_the_copy_is_spilled_before_the_original_is_removed(
    error: Exception,
) -> None:
    """T1 SPILL, the default; R32; law 2."""
    bench = Bench(dead_letter_queue="dead")
    bench.send_error = error
    delivery = a_delivery(a_message(id="m-1"))

    with structlog.testing.capture_logs() as lines:
        routed = await bench.router.route(delivery, DELIVERY_ERROR, "no stock")

    [spilled] = await bench.spill.all()
    assert (spilled.destination, spilled.message.id) == ("dead", "m-1")
    assert spilled.message.headers[headers.REJECTION_DETAIL] == "no stock"
    assert spilled.spilled_at_s == bench.clock.time_s()
    assert (routed.action, routed.destination) == (ACK, "dead")
    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("routing.failed", "error"),
        ("message.spilled", "info"),
    ]
    assert (lines[0]["message_id"], lines[0]["reason"]) == ("m-1", "DeliveryError")
    assert bench.counters.value("pump_messages_spilled") == 1
    assert bench.counters.value("pump_routing_failures", queue="orders") == 1
    assert bench.counters.value("pump_messages_rejected") == 0


async def test_when_the_queue_never_answers_then_the_copy_is_spilled_after_a_while() -> None:
    """T1: a consumer is not blocked for ever."""
    bench = Bench(dead_letter_queue="dead")
    await bench.router.route(a_delivery(), DELIVERY_ERROR, "")
    bench.producers["dead"].hangs = True
    routing = asyncio.create_task(bench.router.route(a_delivery(), DELIVERY_ERROR, ""))
    await bench.clock.advance(29.9)
    assert not routing.done()

    await bench.clock.advance(0.2)

    assert routing.done()
    assert (await routing).action == ACK
    assert len(await bench.spill.all()) == 1


async def test_when_the_spill_fails_too_then_the_original_is_kept_and_tried_again_later() -> None:
    """T1, law 2."""
    backoff = Backoff(initial=timedelta(seconds=4), factor=2, jitter=0.5)
    bench = Bench(spill=BrokenSpill(), dead_letter_queue="dead", failure=hybrid(3, backoff=backoff))
    bench.send_error = ConnectionFailed("dead", "away")

    with structlog.testing.capture_logs() as lines:
        routed = await bench.router.route(a_delivery(attempt=3), DELIVERY_ERROR, "")

    assert (routed.action, routed.destination) == (Defer(16.0), None)
    assert [line["event"] for line in lines] == [
        "routing.failed",
        "spill.failed",
        "message.kept",
    ]
    assert bench.counters.value("pump_messages_spilled") == 0


async def test_when_the_policy_is_keep_then_the_original_comes_again_after_a_backoff() -> None:
    """T1 KEEP."""
    bench = Bench(dead_letter_queue="dead", on_routing_failure="keep", failure=dead_letter("dead"))
    bench.send_error = ConnectionFailed("dead", "away")

    routed = await bench.router.route(a_delivery(attempt=2), DELIVERY_ERROR, "")

    assert (routed.action, routed.destination) == (Defer(2.0), None)
    assert await bench.spill.all() == []


async def test_when_the_policy_is_delete_then_the_loss_is_logged_and_the_original_removed() -> None:
    """T1 DELETE, which is the fourth document to the letter."""
    bench = Bench(dead_letter_queue="dead", on_routing_failure="delete")
    bench.send_error = ConnectionFailed("dead", "away")
    delivery = a_delivery(a_message(id="m-1"))

    with structlog.testing.capture_logs() as lines:
        routed = await bench.router.route(delivery, DELIVERY_ERROR, "")

    assert (routed.action, routed.destination) == (ACK, None)
    assert await bench.spill.all() == []
    assert [line["event"] for line in lines] == ["routing.failed", "message.lost"]
    assert {line["message_id"] for line in lines} == {"m-1"}


async def test_when_routing_is_cancelled_then_the_cancellation_goes_on() -> None:
    """Law 6."""
    bench = Bench(dead_letter_queue="dead")
    await bench.router.route(a_delivery(), DELIVERY_ERROR, "")
    bench.producers["dead"].hangs = True
    routing = asyncio.create_task(bench.router.route(a_delivery(), DELIVERY_ERROR, ""))
    await bench.clock.settle()

    routing.cancel()
    await asyncio.wait([routing])

    assert routing.cancelled()
    assert await bench.spill.all() == []

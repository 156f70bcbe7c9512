"""Rejection: where it goes, what travels along, and what happens when the way is blocked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest
import structlog.testing
from hypothesis import given, strategies as st

from pump import headers
from pump.backoff import Backoff
from pump.errors import (
    AccessDenied,
    ConnectionFailed,
    MessageTooLarge,
    QueueNotFound,
    SendFailed,
    StorageFailed,
    Throttled,
)
from pump.message import Message
from pump.observability.counters import Counters
from pump.outcome import ACK, Defer, RejectionReason
from pump.rejection import RejectionRouter, copy_id, destination_of, enrich
from pump.stores.spill import MemorySpill, SpilledMessage
from pump.strategy import dead_letter, hybrid
from pump.testing.builders import a_delivery, a_message, a_subscription
from pump.testing.virtual_clock import EPOCH_S, VirtualClock

DELIVERY_ERROR = RejectionReason.DELIVERY_ERROR
UNACCEPTABLE = RejectionReason.UNACCEPTABLE
TEXT = st.text(max_size=20)


@attrs.define(eq=False)
class FakeProducer:
    """Takes messages, or fails as it is told to."""

    queue: str
    sent: list[Message] = attrs.field(factory=list)
    error: Exception | None = None
    hangs: bool = False
    is_closed: bool = False

    async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
        assert delay_s == 0
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        self.sent.extend(messages)
        return [message.id for message in messages]

    async def aclose(self) -> None:
        self.is_closed = True


class BrokenSpill(MemorySpill):
    """A disk that is full."""

    async def put(self, spilled: SpilledMessage) -> None:
        raise StorageFailed("/spill.db", "disk full")


class Bench:
    """A router among fakes."""

    def __init__(self, *, spill: MemorySpill | None = None, **subscription: Any) -> None:
        self.clock = VirtualClock(chance=0.0)
        self.producers: dict[str, FakeProducer] = {}
        self.made: list[str] = []
        self.creation_error: Exception | None = None
        self.send_error: Exception | None = None
        self.spill = spill or MemorySpill()
        self.counters = Counters()
        self.router = RejectionRouter(
            a_subscription(**subscription),
            producer_of=self._producer_of,
            spill=self.spill,
            clock=self.clock,
            counters=self.counters,
        )

    def _producer_of(self, queue: str) -> FakeProducer:
        self.made.append(queue)
        if self.creation_error is not None:
            raise self.creation_error
        producer = self.producers[queue] = FakeProducer(queue, error=self.send_error)
        return producer


# -- the ladder ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dead", "invalid", "reason", "destination"),
    [
        ("dead", "bad", DELIVERY_ERROR, "dead"),
        ("dead", "bad", UNACCEPTABLE, "bad"),
        ("dead", None, DELIVERY_ERROR, "dead"),
        ("dead", None, UNACCEPTABLE, "dead"),
        (None, "bad", DELIVERY_ERROR, None),
        (None, "bad", UNACCEPTABLE, "bad"),
        (None, None, DELIVERY_ERROR, None),
        (None, None, UNACCEPTABLE, None),
    ],
)
async def test_when_a_message_is_rejected_then_it_goes_down_the_ladder(
    dead: str | None, invalid: str | None, reason: RejectionReason, destination: str | None
) -> None:
    """R25, R26, R29, R30."""
    bench = Bench(dead_letter_queue=dead, invalid_queue=invalid)

    routed = await bench.router.route(a_delivery(), reason, "why")

    subscription = a_subscription(dead_letter_queue=dead, invalid_queue=invalid)
    assert destination_of(subscription, reason) == destination
    assert (routed.action, routed.destination) == (ACK, destination)
    assert list(bench.producers) == ([destination] if destination else [])
    if destination:
        [copy] = bench.producers[destination].sent
        assert copy.headers[headers.REJECTION_REASON] == reason.value


async def test_when_there_is_no_queue_then_the_loss_is_warned_of_and_counted() -> None:
    """R30."""
    bench = Bench()
    delivery = a_delivery(a_message(id="m-1"))

    with structlog.testing.capture_logs() as lines:
        await bench.router.route(delivery, DELIVERY_ERROR, "secret detail")

    [line] = lines
    assert line["event"] == "message.discarded"
    assert line["log_level"] == "warning"
    assert (line["message_id"], line["reason"]) == ("m-1", "DeliveryError")
    assert "dead_letter_queue" in line["remedy"]
    assert bench.counters.value("pump_messages_discarded", queue="orders") == 1
    assert bench.counters.value("pump_messages_rejected") == 0
    assert bench.made == []


# -- what travels along -------------------------------------------------------------------------


@given(
    body=st.binary(max_size=50),
    fields=st.fixed_dictionaries(
        {
            "type": TEXT,
            "content_type": TEXT,
            "correlation_id": st.none() | TEXT,
            "reply_to": st.none() | TEXT,
            "group": st.none() | TEXT,
            "created_at_s": st.none() | st.floats(0, 1e10),
            "headers": st.dictionaries(TEXT, TEXT, max_size=4),
        }
    ),
    reason=st.sampled_from(RejectionReason),
    detail=TEXT,
    attempt=st.integers(1, 100),
)
def test_when_a_message_is_enriched_then_everything_of_the_original_survives(
    body: bytes, fields: dict[str, Any], reason: RejectionReason, detail: str, attempt: int
) -> None:
    """R21, R28."""
    original = a_message(body, **fields)
    delivery = a_delivery(original, queue="orders", attempt=attempt)

    copy = enrich(delivery, reason, detail, rejected_at_s=EPOCH_S)

    assert attrs.evolve(copy, headers={}, deduplication_id=None) == attrs.evolve(
        original, headers={}, deduplication_id=None
    )
    assert dict(copy.headers) == {
        **original.headers,
        "originalTopic": "orders",
        "rejectionReason": reason.value,
        "rejectionMessage": detail,
        "rejectionTimestamp": "2025-06-15T15:06:40+00:00",
        "originalMessageType": original.type,
        "attempts": str(attempt),
    }
    assert original.headers == fields["headers"], "the original is not touched"


async def test_when_a_message_is_routed_then_trace_correlation_and_group_survive() -> None:
    """R28, R59."""
    bench = Bench(dead_letter_queue="dead")
    message = a_message(
        correlation_id="c-1",
        group="g-1",
        reply_to="answers",
        headers={"traceparent": "00-a-b-01", "tracestate": "x=1", "tenant": "t-1"},
    )

    await bench.router.route(a_delivery(message, attempt=4), DELIVERY_ERROR, "no stock")

    [copy] = bench.producers["dead"].sent
    assert (copy.id, copy.correlation_id, copy.group, copy.reply_to) == (
        message.id,
        "c-1",
        "g-1",
        "answers",
    )
    assert copy.headers["traceparent"] == "00-a-b-01"
    assert copy.headers["tracestate"] == "x=1"
    assert copy.headers["tenant"] == "t-1"
    assert copy.headers[headers.REJECTION_DETAIL] == "no stock"
    assert copy.headers[headers.ATTEMPTS] == "4"
    rejected_at = datetime.fromisoformat(copy.headers[headers.REJECTION_TIMESTAMP])
    assert rejected_at == datetime.fromtimestamp(bench.clock.time_s(), UTC)


def test_when_a_rejection_is_repeated_then_its_copy_has_the_same_deduplication_id() -> None:
    """T10: a crash between send and delete."""
    message = a_message(id="m-1", deduplication_id="the sender's own")
    first = enrich(a_delivery(message, attempt=1), DELIVERY_ERROR, "a", rejected_at_s=1)
    again = enrich(a_delivery(message, attempt=2), DELIVERY_ERROR, "b", rejected_at_s=2)

    assert first.deduplication_id == again.deduplication_id
    assert first.deduplication_id != "the sender's own"


def test_when_a_message_is_rejected_again_after_a_redrive_then_its_copy_is_another_one() -> None:
    """T10."""
    first = enrich(a_delivery(a_message(id="m-1")), DELIVERY_ERROR, "a", rejected_at_s=1)

    redriven = enrich(a_delivery(first), DELIVERY_ERROR, "a", rejected_at_s=2)
    third = enrich(a_delivery(redriven), DELIVERY_ERROR, "a", rejected_at_s=3)

    assert len({first.deduplication_id, redriven.deduplication_id, third.deduplication_id}) == 3


def test_when_message_queue_or_reason_differ_then_so_do_the_copies_ids() -> None:
    """T10."""
    one, other = a_message(id="m-1"), a_message(id="m-2")
    ids = {
        copy_id(a_delivery(one), DELIVERY_ERROR),
        copy_id(a_delivery(other), DELIVERY_ERROR),
        copy_id(a_delivery(one), UNACCEPTABLE),
        copy_id(a_delivery(one, queue="other"), DELIVERY_ERROR),
    }

    assert len(ids) == 4
    assert all(len(each) <= 128 for each in ids), "SQS takes no longer ones"


async def test_when_a_message_is_routed_then_one_line_names_its_id_and_reason() -> None:
    """R33, R61."""
    bench = Bench(dead_letter_queue="dead", invalid_queue="bad")
    delivery = a_delivery(a_message(b"secret body", id="m-1", headers={"h": "secret"}), attempt=2)

    with structlog.testing.capture_logs() as lines:
        await bench.router.route(delivery, UNACCEPTABLE, "detail")

    assert lines == [
        {
            "event": "message.rejected",
            "log_level": "info",
            "message_id": "m-1",
            "queue": "orders",
            "reason": "Unacceptable",
            "destination": "bad",
            "attempt": 2,
        }
    ]
    assert bench.counters.value("pump_messages_rejected", reason="Unacceptable") == 1


# -- the lazy producer --------------------------------------------------------------------------


async def test_when_nothing_is_rejected_then_no_producer_is_made() -> None:
    """R31."""
    bench = Bench(dead_letter_queue="dead", invalid_queue="bad")

    assert bench.made == []
    await bench.router.aclose()
    assert bench.made == []


async def test_when_many_are_rejected_then_one_producer_a_queue_is_made() -> None:
    """R31."""
    bench = Bench(dead_letter_queue="dead", invalid_queue="bad")

    for reason in (DELIVERY_ERROR, DELIVERY_ERROR, UNACCEPTABLE, DELIVERY_ERROR, UNACCEPTABLE):
        await bench.router.route(a_delivery(), reason, "")

    assert bench.made == ["dead", "bad"]
    assert len(bench.producers["dead"].sent) == 3


async def test_when_a_producer_cannot_be_made_then_the_next_rejection_tries_again() -> None:
    """R31: a failed creation is never cached."""
    bench = Bench(dead_letter_queue="dead")
    bench.creation_error = ConnectionFailed("dead", "away")
    first = await bench.router.route(a_delivery(a_message(id="m-1")), DELIVERY_ERROR, "")
    second = await bench.router.route(a_delivery(a_message(id="m-2")), DELIVERY_ERROR, "")
    bench.creation_error = None

    third = await bench.router.route(a_delivery(a_message(id="m-3")), DELIVERY_ERROR, "")

    assert bench.made == ["dead", "dead", "dead"]
    assert [message.id for message in bench.producers["dead"].sent] == ["m-3"]
    assert first.action == second.action == third.action == ACK
    assert [each.message.id for each in await bench.spill.all()] == ["m-1", "m-2"]


async def test_when_the_router_is_closed_then_its_producers_are_too_and_twice_does_no_harm() -> (
    None
):
    bench = Bench(dead_letter_queue="dead")
    await bench.router.route(a_delivery(), DELIVERY_ERROR, "")

    await bench.router.aclose()
    await bench.router.aclose()

    assert bench.producers["dead"].is_closed


# -- when the way is blocked (T1, R32) ----------------------------------------------------------

FAILURES = [
    ConnectionFailed("dead", "away"),
    Throttled("dead"),
    QueueNotFound("dead"),
    AccessDenied("dead", "send"),
    MessageTooLarge("dead", 10, 5),
    SendFailed("dead", (("m-1", Throttled("dead")),)),
    OSError("network unreachable"),
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

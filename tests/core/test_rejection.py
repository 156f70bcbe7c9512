"""Rejection: where it goes, what travels along, and by which producer."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import structlog.testing
from hypothesis import given, strategies as st
from msgspec.structs import replace

from pump import headers
from pump.errors import (
    ConnectionFailed,
)
from pump.outcome import ACK, RejectionReason
from pump.rejection import copy_id, destination_of, enrich
from pump.testing.builders import a_delivery, a_message, a_subscription
from pump.testing.virtual_clock import EPOCH_S

from .routing_bench import DELIVERY_ERROR, UNACCEPTABLE, Bench

TEXT = st.text(max_size=20)

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
        ("dead", "bad", "OfAnotherVersion", "dead"),
    ],
)
async def test_when_a_message_is_rejected_then_it_goes_down_the_ladder(
    dead: str | None, invalid: str | None, reason: RejectionReason | str, destination: str | None
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
        assert copy.headers[headers.REJECTION_REASON] == str(reason)


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

    assert replace(copy, headers={}, deduplication_id=None) == replace(
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


async def test_when_an_id_holds_half_a_surrogate_pair_then_the_message_is_routed_all_the_same() -> (
    None
):
    """R26, R35: SQS's packed headers can hold one; it must not make the pump begin for ever."""
    bench = Bench(invalid_queue="bad")
    message = a_message(id="\ud800", headers={headers.REJECTION_TIMESTAMP: "\udfff"})

    routed = await bench.router.route(a_delivery(message), UNACCEPTABLE, "why")

    assert routed.action == ACK
    assert [copy.id for copy in bench.producers["bad"].sent] == ["\ud800"]

"""Messages on the wire: ours arrive exactly, and strangers' are understood."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import attrs
import pamqp.frame
import pytest
from aiormq.abc import DeliveredMessage
from hypothesis import example, given, strategies as st
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from gateways.rabbitmq import amqp
from gateways.rabbitmq.wire import (
    ATTEMPTS,
    DELIVERY_COUNT,
    EXACT,
    ORDER,
    STORED_ID,
    Parcel,
    again,
    attempt_of,
    dead,
    decode,
    encode,
    native_of,
    sorted_in,
)
from pump import headers as names
from pump.message import Delivery, Message
from pump.rejection import enrich

text = st.text(st.characters(), max_size=300)
maybe = st.none() | text
messages = st.builds(
    Message,
    body=st.binary(max_size=200),
    id=text.filter(bool),
    type=text,
    content_type=text,
    correlation_id=maybe,
    reply_to=maybe,
    group=maybe,
    deduplication_id=maybe,
    created_at_s=st.none() | st.floats(-1e12, 1e12),
    headers=st.dictionaries(text | st.sampled_from(["CC", "x-death", "pump", "BCC"]), text),
)


def carried(parcel: Parcel) -> Parcel:
    """The parcel after the SDK has written and read its properties."""
    header = ContentHeader(properties=amqp.properties_of(parcel), body_size=len(parcel.body))
    _, _, arrived = pamqp.frame.unmarshal(pamqp.frame.marshal(header, 1))
    delivered = Basic.Deliver(consumer_tag="tag", delivery_tag=1, exchange="", routing_key="q")
    message = DeliveredMessage(delivered, arrived, parcel.body, None)  # type: ignore[arg-type]
    return amqp.parcel_of(message)


@given(messages)
@example(Message(body=b"", id="m", headers={"k" * 129: "", "é" * 64: "", "é" * 65: ""}))
def test_when_a_message_is_sent_then_body_and_attributes_arrive_exactly(message: Message) -> None:
    """R1: whatever is in them, through the SDK's own frames."""
    assert decode(carried(encode(message))) == message


@given(messages, st.integers(1, 50))
def test_when_a_message_is_sent_again_then_it_is_the_same_with_its_attempts(
    message: Message, attempts: int
) -> None:
    """R17: of this queue only; elsewhere it begins anew."""
    parcel = carried(again(carried(encode(message)), queue="orders", attempts=attempts))

    assert decode(parcel) == message
    assert attempt_of(parcel, queue="orders", is_redelivered=False) == attempts + 1
    assert attempt_of(parcel, queue="others", is_redelivered=False) == 1


@given(messages)
def test_when_a_message_is_sorted_into_a_session_then_it_is_the_same(message: Message) -> None:
    first = encode(message)

    parcel = carried(sorted_in(carried(first), order=1_800_000_000_000_000))

    assert decode(parcel) == message
    assert (parcel.stored_id, parcel.order) == (first.stored_id, 1_800_000_000_000_000)


@given(st.dictionaries(st.text(max_size=20), st.none() | st.booleans() | st.integers() | text))
def test_when_headers_are_garbage_then_decoding_does_not_raise(table: dict[str, Any]) -> None:
    """Law 4: a message that is not understood must still be routed."""
    message = decode(Parcel(body=b"x", headers={**table, "pump": table.get("pump", "{")}))

    assert message.body == b"x"
    assert message.id


@pytest.mark.parametrize("text", ["[" * 100_000, '{"id":' * 100_000, "nonsense"])
def test_when_our_own_header_is_garbage_then_it_is_left_out(text: str) -> None:
    """Law 4: nesting without end would end the receive, and the same message the next one."""
    message = decode(Parcel(body=b"x", properties={"message_id": "m"}, headers={EXACT: text}))

    assert (message.id, message.body) == ("m", b"x")


def test_when_the_broker_has_counted_then_the_attempt_follows_its_count() -> None:
    """Quorum queues do not count the first delivery."""
    parcel = encode(Message(body=b""))
    returned = attrs.evolve(parcel, headers={**parcel.headers, DELIVERY_COUNT: 2})

    assert attempt_of(parcel, queue="orders", is_redelivered=False) == 1
    assert attempt_of(returned, queue="orders", is_redelivered=True) == 3


def test_when_a_classic_queue_delivers_again_then_it_is_the_second_attempt() -> None:
    """It counts nothing, and only says so."""
    assert attempt_of(encode(Message(body=b"")), queue="orders", is_redelivered=True) == 2


@pytest.mark.parametrize(
    "carried_count", [{"queue": "orders", "count": -3}, {"queue": "orders"}, "7", 7, None]
)
def test_when_the_attempt_header_is_not_ours_then_it_counts_for_nothing(
    carried_count: object,
) -> None:
    parcel = Parcel(body=b"", headers={ATTEMPTS: carried_count})

    assert attempt_of(parcel, queue="orders", is_redelivered=False) == 1


def test_when_a_message_is_dead_lettered_then_it_says_why_and_keeps_what_it_was() -> None:
    """R21, R28."""
    message = Message(body=b"{}", type="Order", correlation_id="c", group="g", headers={"a": "b"})
    parcel = again(encode(message), queue="orders", attempts=2)

    routed = decode(carried(dead(parcel, queue="orders", attempts=3, at_s=0.0)))

    assert (routed.id, routed.body, routed.correlation_id) == (message.id, b"{}", "c")
    assert routed.group == "g"
    assert routed.headers == {
        "a": "b",
        names.ORIGINAL_TOPIC: "orders",
        names.REJECTION_REASON: "DeliveryError",
        names.REJECTION_DETAIL: "delivered 3 times (max_receive_count)",
        names.REJECTION_TIMESTAMP: "1970-01-01T00:00:00+00:00",
        names.ORIGINAL_TYPE: "Order",
        names.ATTEMPTS: "3",
    }


def test_when_the_broker_itself_has_dead_lettered_then_the_headers_say_so_in_our_words() -> None:
    """R21; a delay is no death."""
    death = {"x-first-death-reason": "delivery_limit", "x-first-death-queue": "orders"}
    delay = {"x-first-death-reason": "expired", "x-first-death-queue": "orders.delay.10"}

    routed = decode(Parcel(body=b"", headers=death))
    delayed = decode(Parcel(body=b"", headers=delay))

    assert routed.headers[names.ORIGINAL_TOPIC] == "orders"
    assert routed.headers[names.REJECTION_REASON] == "DeliveryError"
    assert delayed.headers == {}


def test_when_a_stranger_sent_it_then_its_properties_are_our_fields() -> None:
    """T11: what AMQP has a place for is there."""
    at = datetime(2026, 11, 17, tzinfo=UTC)
    parcel = Parcel(
        body=b"{}",
        properties={"message_id": "m", "type": "Order", "timestamp": at, "reply_to": "answers"},
        headers={
            "n": 7,
            "raw": b"\xff",
            "word": b"yes",
            "at": at,
            "none": None,
            "deep": {"a": [1]},
        },
    )

    message = decode(parcel)

    assert (message.id, message.type, message.reply_to) == ("m", "Order", "answers")
    assert message.created_at_s == at.timestamp()
    assert message.headers == {
        "n": "7",
        "raw": "/w==",
        "word": "yes",
        "at": at.isoformat(),
        "none": "",
        "deep": '{"a":[1]}',
    }


def test_when_a_message_has_no_id_then_it_gets_one_that_stays_when_it_is_sent_again() -> None:
    parcel = again(Parcel(body=b""), queue="orders", attempts=1)

    assert decode(parcel).id == parcel.properties["message_id"]


def test_when_a_stranger_uses_our_header_names_wrongly_then_they_are_left_out() -> None:
    parcel = Parcel(body=b"", headers={STORED_ID: 3, ORDER: "x", "pump": b"\x00"})

    assert (parcel.stored_id, parcel.order) == (None, 0)
    assert decode(parcel).headers == {}


def test_when_acks_are_packed_by_hand_then_they_are_the_frames_that_the_sdk_would_write() -> None:
    ours = amqp._ACK.pack(1, 7, 13, 60, 80, 12, amqp._MULTIPLE, 206)
    nack = amqp._ACK.pack(1, 7, 13, 60, 120, 12, amqp._REQUEUE, 206)

    assert ours == pamqp.frame.marshal(Basic.Ack(delivery_tag=12, multiple=True), 7)
    assert nack == pamqp.frame.marshal(Basic.Nack(delivery_tag=12, requeue=True), 7)
    assert struct.calcsize(amqp._ACK.format) == 21


@pytest.mark.parametrize(
    "value",
    [
        b"\xff\xfe",
        1e300,
        0.1,
        float("nan"),
        Decimal(4_294_967_295),
        [b"\xff", {"deep": 1e300}],
        {"at": datetime(2026, 11, 18, tzinfo=UTC), "n": [1, None, True, 2.5]},
    ],
)
@pytest.mark.parametrize(
    "sent",
    [
        lambda parcel: again(parcel, queue="orders", attempts=1),
        lambda parcel: sorted_in(parcel, order=1),
    ],
)
def test_when_a_strangers_message_is_sent_again_then_its_odd_headers_stay_as_they_were(
    value: object, sent: Callable[[Parcel], Parcel]
) -> None:
    """The SDK reads more than it writes: text that is none, and numbers of eight bytes."""
    parcel = Parcel(body=b"x", properties={"message_id": "m"}, headers={"odd": value})

    arrived = carried(sent(parcel))

    assert decode(arrived).headers == decode(parcel).headers


def test_when_a_strangers_message_is_a_dead_letter_then_its_odd_headers_stay_as_they_were() -> None:
    parcel = Parcel(body=b"x", properties={"message_id": "m"}, headers={"odd": b"\xff"})

    arrived = carried(dead(parcel, queue="orders", attempts=3, at_s=0.0))

    assert decode(arrived).headers["odd"] == decode(parcel).headers["odd"]


def test_when_a_strangers_message_is_rejected_then_its_headers_are_typed_as_they_came() -> None:
    """R28: and the rejection is beside them under Brighter's names."""
    given: dict[str, Any] = {
        "MessageType": "MT_COMMAND",
        "amount": 7,
        "share": 0.5,
        "is_paid": True,
        "at": datetime(2026, 11, 16, 12, tzinfo=UTC),
        "picture": bytearray(b"GIF\x00\xff"),
        "note": bytearray(b"plain"),
        "tags": ["a", 1],
        "place": {"row": 3},
        "nothing": None,
    }
    parcel = carried(Parcel(body=b"{}", headers=given))
    delivery = Delivery(
        message=decode(parcel),
        queue="jobs",
        receipt="r",
        attempt=1,
        lease_expires_at_s=1.0,
        native=native_of(parcel),
    )
    copy = enrich(delivery, "DeliveryError", "no stock", rejected_at_s=0.0)

    seen = carried(encode(copy))

    assert {name: seen.headers[name] for name in given} == parcel.headers
    assert seen.headers[names.REJECTION_REASON] == "DeliveryError"
    assert seen.headers[names.ORIGINAL_TYPE] == "MT_COMMAND"
    assert names.NATIVE not in seen.headers
    assert decode(seen) == copy


def test_when_brighters_message_is_dead_lettered_then_its_kind_is_the_original_type() -> None:
    """R28."""
    parcel = Parcel(body=b"{}", headers={"MessageType": "MT_EVENT"})

    assert dead(parcel, queue="q", attempts=3, at_s=0.0).headers[names.ORIGINAL_TYPE] == "MT_EVENT"


@pytest.mark.parametrize(
    "native", ["", "[]", '{"rabbitmq": 7}', '{"rabbitmq": {"a": "json", "b": "time", "c": 1}}']
)
def test_when_what_was_kept_of_types_makes_no_sense_then_headers_are_text(native: str) -> None:
    message = Message(body=b"{}", headers={"a": "{", "b": "x", "c": "y", names.NATIVE: native})

    seen = carried(encode(message))

    assert {name: seen.headers[name] for name in "abc"} == {"a": "{", "b": "x", "c": "y"}
    assert decode(seen) == message

"""Messages arrive on Service Bus exactly as they were sent, whatever is in them (R1).

They go through the SDK's own encoding and back, which is what travels.
"""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus._pyamqp._decode import decode_payload
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from hypothesis import example, given, strategies as st

from gateways.servicebus import sdk
from gateways.servicebus.settling import delivery_of
from gateways.servicebus.wire import (
    ATTEMPTS,
    ATTEMPTS_OF,
    DEAD_DETAIL,
    DEAD_REASON,
    EXACT,
    ServiceBusArrival,
    ServiceBusParcel,
    again,
    attempt_of,
    decode,
    encode,
    handed_back,
    stored_id_of,
)
from pump import headers as names
from pump.message import JSON, Message
from pump.rejection import enrich
from tests.gateways.sqs.messages import messages, texts

NOW_S = 1_794_830_400.0


def carried(message: ServiceBusMessage) -> ServiceBusArrival:
    """A message of the SDK after its way over the wire."""
    octets = bytearray()
    encode_payload(octets, PyamqpTransport.to_outgoing_amqp_message(message.raw_amqp_message))
    received = ServiceBusReceivedMessage(
        decode_payload(memoryview(bytes(octets))), receiver=None, is_peeked_message=True
    )
    return sdk.arrival_of(received, NOW_S)


def arrived(parcel: ServiceBusParcel, **fields: Any) -> ServiceBusArrival:
    return attrs.evolve(carried(sdk.outgoing(parcel, None)), **fields)


@given(messages)
@example(Message(body=b""))
@example(Message(body=b"{}", type="", content_type="", correlation_id="", reply_to=""))
@example(Message(body=b"{}", headers={"pump": "x", "DeadLetterReason": "y", "x-opt-z": "z"}))
@example(Message(body=b"{}", headers={"": "", "big": "x" * 5_000, "\ud800": "\udfff"}))
@example(Message(body=b"{}", created_at_s=1794830400.123456, group=""))
def test_when_any_message_is_carried_then_it_arrives_as_it_was_sent(message: Message) -> None:
    assert decode(arrived(encode(message))) == message


@given(messages)
def test_when_any_message_is_retried_then_it_is_the_same_and_counted(message: Message) -> None:
    first = arrived(encode(message), delivery_count=2, sequence=7)
    attempt = attempt_of(first, queue="orders")

    copy = arrived(again(first, queue="orders", attempts=attempt), sequence=8)

    assert decode(copy) == message
    assert (attempt, attempt_of(copy, queue="orders")) == (3, 4)
    assert stored_id_of(copy) == stored_id_of(first)
    assert copy.parcel.properties["message_id"] != first.parcel.properties["message_id"]


@given(messages)
def test_when_a_message_is_sent_again_then_it_is_no_duplicate_and_another_one(
    message: Message,
) -> None:
    """T6, R39: only a de-duplication id makes two sends one."""
    one, other = arrived(encode(message)), arrived(encode(message))

    assert stored_id_of(one) != stored_id_of(other)
    are_one = one.parcel.properties["message_id"] == other.parcel.properties["message_id"]
    assert are_one == (message.deduplication_id is not None)


def test_when_a_foreign_message_is_retried_then_what_the_sdk_cannot_send_again_becomes_text() -> (
    None
):
    first = ServiceBusArrival(
        parcel=ServiceBusParcel(
            body=b"x",
            properties={"message_id": "theirs"},
            headers={"digest": b"\xff\xfe", "none": None, "count": 3, "nested": [1, 2]},
        ),
        token="",
        sequence=5,
        enqueued_at_s=NOW_S,
    )

    copy = arrived(again(first, queue="orders", attempts=1))

    assert decode(copy) == decode(first)
    assert stored_id_of(copy) == stored_id_of(first) == "5"


def test_when_attempts_were_on_another_queue_then_they_do_not_count_here() -> None:
    first = arrived(encode(Message(body=b"")), delivery_count=4)

    copy = arrived(again(first, queue="orders", attempts=5))

    assert attempt_of(copy, queue="Orders") == 6
    assert attempt_of(copy, queue="dead") == 1


def test_when_any_client_looks_then_it_finds_the_fields_that_amqp_has() -> None:
    parcel = encode(
        Message(
            body=b"{}",
            type="PlaceOrder",
            correlation_id="c-1",
            reply_to="answers",
            group="ada",
            headers={"tenant": "north"},
        )
    )

    assert parcel.properties["subject"] == "PlaceOrder"
    assert parcel.properties["content_type"] == JSON
    assert parcel.properties["correlation_id"] == "c-1"
    assert parcel.properties["reply_to"] == "answers"
    assert parcel.properties["session_id"] == "ada"
    assert parcel.headers["tenant"] == "north"


def test_when_a_foreign_producer_sends_then_its_message_is_understood() -> None:
    message = decode(
        carried(
            ServiceBusMessage(
                b'{"sku": "A-1"}',
                message_id="theirs",
                subject="PlaceOrder",
                content_type="application/json",
                correlation_id="c-1",
                session_id="ada",
                application_properties={"tenant": "north", "retries": 3, "is_vip": True},
            )
        )
    )

    assert (message.id, message.type, message.group) == ("theirs", "PlaceOrder", "ada")
    assert (message.body, message.content_type) == (b'{"sku": "A-1"}', "application/json")
    assert message.headers == {"tenant": "north", "retries": "3", "is_vip": "true"}


def test_when_a_foreign_message_has_no_id_then_it_is_the_same_one_at_every_delivery() -> None:
    """R28: also after a delayed retry."""
    first = ServiceBusArrival(
        parcel=ServiceBusParcel(body=b"x"), token="", sequence=5, enqueued_at_s=NOW_S
    )
    copy = ServiceBusArrival(parcel=again(first, queue="orders", attempts=1), token="", sequence=9)

    ids = {decode(first).id, decode(attrs.evolve(first, delivery_count=1)).id, decode(copy).id}

    assert len(ids) == 1
    assert decode(attrs.evolve(first, sequence=6)).id not in ids


@pytest.mark.parametrize(
    "value", [2**31, -(2**31) - 1, 1_794_954_988_743, 2**64 - 1, True, 7, b"b"]
)
def test_when_a_foreign_property_is_of_any_kind_then_the_sdk_can_send_it_again(value: Any) -> None:
    """R17: a time arrives as a large number, which the SDK refuses to send."""
    first = ServiceBusArrival(
        parcel=ServiceBusParcel(body=b"x", headers={"a": value}), token="", sequence=5
    )
    copy = again(first, queue="orders", attempts=1)

    outgoing = sdk.outgoing(copy, None).raw_amqp_message
    encode_payload(bytearray(), PyamqpTransport.to_outgoing_amqp_message(outgoing))

    assert decode(attrs.evolve(first, parcel=copy)).headers == decode(first).headers


@pytest.mark.parametrize("packed", ["", "{", "[]", "null", '{"id": 5}', '{"id": ""}', 7])
def test_when_our_own_property_is_broken_then_the_message_is_taken_as_foreign(packed: Any) -> None:
    """R26: so that it can be routed."""
    parcel = encode(Message(body=b"x", type="PlaceOrder"))
    broken = attrs.evolve(parcel, headers={**parcel.headers, EXACT: packed})

    message = decode(arrived(broken))

    assert (message.body, message.type) == (b"x", "PlaceOrder")
    assert message.id == parcel.properties["message_id"]


@given(st.dictionaries(texts, st.integers() | st.none() | st.binary(max_size=5) | texts))
def test_when_properties_are_of_any_kind_then_reading_them_never_fails(
    headers: dict[str, Any],
) -> None:
    arrival = ServiceBusArrival(
        parcel=ServiceBusParcel(body=b"x", headers=headers), token="", sequence=1
    )

    message = decode(arrival)

    assert all(isinstance(text, str) for text in message.headers.values())
    assert attempt_of(arrival, queue="orders") == 1


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("text", b"text"),
        (b"bytes", b"bytes"),
        ({"sku": "A-1", "count": 2}, b'{"sku":"A-1","count":2}'),
        (5, b"5"),
    ],
)
def test_when_a_foreign_body_is_a_value_then_its_text_is_the_body(
    body: object, expected: bytes
) -> None:
    from azure.servicebus.amqp import AmqpAnnotatedMessage

    octets = bytearray()
    encode_payload(
        octets, PyamqpTransport.to_outgoing_amqp_message(AmqpAnnotatedMessage(value_body=body))
    )
    received = ServiceBusReceivedMessage(
        decode_payload(memoryview(bytes(octets))), receiver=None, is_peeked_message=True
    )

    assert sdk.arrival_of(received, NOW_S).parcel.body == expected


def test_when_the_service_has_dead_lettered_a_message_then_it_says_why_in_our_words() -> None:
    """R21."""
    parcel = encode(Message(body=b"x", headers={"tenant": "north"}))
    dead = attrs.evolve(
        parcel,
        headers={
            **parcel.headers,
            DEAD_REASON: "MaxDeliveryCountExceeded",
            DEAD_DETAIL: "10 times",
        },
    )

    message = decode(arrived(dead, dead_letter_source="orders"))

    assert message.headers == {
        "tenant": "north",
        names.ORIGINAL_TOPIC: "orders",
        names.REJECTION_REASON: "DeliveryError",
        names.REJECTION_DETAIL: "Service Bus: MaxDeliveryCountExceeded: 10 times",
    }


@given(messages)
def test_when_a_parcel_is_measured_then_rather_too_much_than_too_little(message: Message) -> None:
    """R58."""
    parcel = encode(message)
    octets = bytearray()
    outgoing = sdk.outgoing(parcel, None).raw_amqp_message

    encode_payload(octets, PyamqpTransport.to_outgoing_amqp_message(outgoing))

    assert len(octets) <= parcel.size


def test_when_a_strangers_message_is_rejected_then_its_numbers_are_numbers_as_they_came() -> None:
    """R28: and the rejection is beside them under Brighter's names."""
    given = {"MessageType": "MT_COMMAND", "amount": 7, "share": 0.25, "is_paid": True, "t": "x"}
    stranger = arrived(ServiceBusParcel(body=b"{}", properties={"message_id": "m"}, headers=given))
    delivery = delivery_of(stranger, queue="jobs", lease_ends_at_s=1.0)
    copy = enrich(delivery, "DeliveryError", "no stock", rejected_at_s=0.0)

    seen = arrived(encode(copy))

    properties = seen.parcel.headers
    assert {name: properties[name] for name in given} == given
    assert properties["is_paid"] is True
    assert properties[names.REJECTION_REASON] == "DeliveryError"
    assert properties[names.ORIGINAL_TYPE] == "MT_COMMAND"
    assert decode(seen) == copy


@pytest.mark.parametrize("native", ["", "[]", '{"servicebus": 7}', '{"servicebus": ["a"]}'])
def test_when_what_was_kept_of_types_makes_no_sense_then_properties_are_text(native: str) -> None:
    message = Message(body=b"{}", headers={"a": "{", names.NATIVE: native})

    seen = arrived(encode(message))

    assert seen.parcel.headers["a"] == "{"
    assert decode(seen) == message


def test_when_it_was_handed_back_then_that_is_no_attempt_on_its_queue() -> None:
    """T5; another queue's hand-backs say nothing, nor do more than the service has counted."""
    headers = {**handed_back(2, queue="orders"), ATTEMPTS: 1, ATTEMPTS_OF: "orders"}
    arrival = arrived(ServiceBusParcel(body=b"x", headers=headers), delivery_count=3)

    assert attempt_of(arrival, queue="Orders") == 1 + 3 - 2 + 1
    assert attempt_of(arrival, queue="dead") == 4
    assert attempt_of(attrs.evolve(arrival, delivery_count=0), queue="orders") == 2


def test_when_a_copy_takes_its_place_then_it_has_no_hand_backs() -> None:
    """T5: the service counts the copy anew."""
    parcel = ServiceBusParcel(body=b"x", headers=handed_back(2, queue="orders"))
    arrival = arrived(parcel, delivery_count=3)

    copy = again(arrival, queue="orders", attempts=attempt_of(arrival, queue="orders"))

    assert attempt_of(ServiceBusArrival(parcel=copy, token="t", sequence=8), queue="orders") == 3

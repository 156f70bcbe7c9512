"""Messages arrive on NATS exactly as they were sent, whatever is in them (R1)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from gateways.nats.link import headers_of
from gateways.nats.wire import (
    HEADER,
    MESSAGE_ID,
    NatsArrival,
    arrival_of,
    decode,
    encode,
    legal_id,
    native_of,
    schedule_at,
    size_of,
)
from pump import headers as names
from pump.message import JSON, Delivery, Message
from pump.rejection import enrich
from tests.gateways.sqs.messages import messages, texts


def block_of(headers: dict[str, str]) -> bytes:
    """The headers as the SDK writes them."""
    lines = [f"{name.strip()}: {text.strip()}\r\n" for name, text in headers.items()]
    return "".join(["NATS/1.0\r\n", *lines, "\r\n"]).encode()


def carried(message: Message) -> Message:
    """The message after its way over the wire."""
    headers = headers_of(block_of(encode(message, stream="orders")))
    return decode(headers, message.body, stored_as="orders-1")


@given(messages)
@example(Message(body=b""))
@example(Message(body=b"", id="\ud800", headers={"x": "\udfff \r\n"}, created_at_s=1.5))
@example(Message(body=b"{}", type=" blank ", headers={"": "", "\x7f": "\x00"}))
def test_when_any_message_is_carried_then_it_arrives_as_it_was_sent(message: Message) -> None:
    assert carried(message) == message


@given(messages)
def test_when_any_message_is_encoded_then_its_headers_are_printable_ascii(
    message: Message,
) -> None:
    """The SDK strips blanks and drops line breaks; a server may refuse anything else."""
    for name, text in encode(message, stream="orders").items():
        assert name.isascii()
        assert text.isascii()
        assert text.isprintable()
        assert text == text.strip()


@given(messages)
def test_when_any_message_is_encoded_then_its_size_is_what_the_server_counts(
    message: Message,
) -> None:
    headers = encode(message, stream="orders")

    assert size_of(headers, message.body) == len(block_of(headers)) + len(message.body)


@given(texts, texts)
def test_when_ids_differ_then_the_server_can_tell(one: str, other: str) -> None:
    """R39; no id is too long or too odd for a header."""
    assert (legal_id(one) == legal_id(other)) == (one == other)
    assert legal_id(one).isprintable()
    assert len(legal_id(one * 100)) <= 200


def test_when_a_message_has_a_deduplication_id_then_the_server_is_told() -> None:
    assert encode(Message(body=b"", deduplication_id="d"), stream="s")[MESSAGE_ID] == "d"
    assert MESSAGE_ID not in encode(Message(body=b""), stream="s")


@pytest.mark.parametrize(
    "packed",
    [
        "",
        "nonsense",
        "[1]",
        '{"v": 2, "id": "x"}',
        '{"v": 1}',
        '{"v": 1, "id": ""}',
        '{"v": 1, "id": 7}',
        '{"v": 1, "id": "x", "h": {"a": 1}}',
        '{"v": 1, "id": "\\ud800", "g": 5}',
        "[" * 100_000,
    ],
)
def test_when_our_header_is_not_ours_then_the_message_is_taken_as_it_came(packed: str) -> None:
    """Law 4: it can be routed, with everything that it had."""
    message = decode({HEADER: packed}, b"body", stored_as="orders-7", stored_at_s=5.0)

    assert (message.id, message.body, message.created_at_s) == ("orders-7", b"body", 5.0)
    assert message.headers == {HEADER: packed}


def test_when_a_time_is_no_time_then_the_message_is_still_ours() -> None:
    content: dict[str, Any] = {"v": 1, "id": "\ud800", "at": float("inf")}

    assert decode({HEADER: json.dumps(content)}, b"", stored_as="x").created_at_s is None


def test_when_a_stranger_spells_fields_in_another_way_then_they_are_understood() -> None:
    headers = {
        "MessageType": "Job",
        "Content_Type": "text/plain",
        "correlation.id": "c",
        "replyTo": "answers",
        "Nats-Expected-Stream": "orders",
        "Custom": "kept",
    }

    message = decode(headers, b"", stored_as="orders-1", group="a")

    assert (message.type, message.content_type) == ("Job", "text/plain")
    assert (message.correlation_id, message.reply_to, message.group) == ("c", "answers", "a")
    assert message.headers == {"Custom": "kept"}


def test_when_a_stranger_names_a_field_twice_then_the_second_is_kept_as_it_is() -> None:
    message = decode({"Type": "Job", "messageType": "Other"}, b"", stored_as="orders-1")

    assert (message.type, message.headers) == ("Job", {"messageType": "Other"})


def test_when_a_stranger_says_nothing_then_its_place_in_the_stream_is_its_id() -> None:
    message = decode(None, b"{}", stored_as="orders-1")

    assert message == Message(body=b"{}", id="orders-1", content_type=JSON)


OLD_REPLY = "$JS.ACK.orders.pump.3.17.20.1700000000500000000.4"
NEW_REPLY = "$JS.ACK.hub.ACCOUNT.orders.pump.3.17.20.1700000000500000000.4.token"


@pytest.mark.parametrize("reply", [OLD_REPLY, NEW_REPLY])
def test_when_a_delivery_comes_then_its_reply_subject_says_which_it_is(reply: str) -> None:
    assert arrival_of(reply) == NatsArrival(
        stream="orders",
        consumer="pump",
        attempt=3,
        sequence=17,
        stored_at_ns=1_700_000_000_500_000_000,
    )


@pytest.mark.parametrize(
    "reply", ["", "_INBOX.x.1", "$JS.ACK.orders.pump.1.2.3", OLD_REPLY.replace("17", "x")]
)
def test_when_a_reply_subject_says_nothing_then_neither_does_the_arrival(reply: str) -> None:
    assert arrival_of(reply) is None


def test_when_a_message_is_scheduled_then_the_time_is_the_servers_format() -> None:
    assert schedule_at(0.0) == "@at 1970-01-01T00:00:00Z"
    assert schedule_at(1_700_000_000.25) == "@at 2023-11-14T22:13:20.250000Z"


@given(st.binary(max_size=80))
@example(b"NATS/1.0 404 No Messages\r\n\r\n")
def test_when_any_bytes_are_taken_for_headers_then_nothing_fails(raw: bytes) -> None:
    """Law 4: the SDK's own reader ends with some of them."""
    headers = headers_of(raw)

    assert all(isinstance(text, str) for pair in headers.items() for text in pair)
    decode(headers, b"", stored_as="orders-1")


def rejected(headers: dict[str, str], detail: str = "no stock") -> Message:
    """The copy that is routed of a message that came with these headers."""
    delivery = Delivery(
        message=decode(headers, b"{}", stored_as="jobs-1"),
        queue="jobs",
        receipt="r",
        attempt=2,
        lease_expires_at_s=1.0,
        native=native_of(headers),
    )
    return enrich(delivery, "DeliveryError", detail, rejected_at_s=1_794_830_400.0)


def test_when_a_message_is_rejected_then_strangers_read_its_headers_and_why() -> None:
    """R28: its own as it was sent with them, the rejection's under Brighter's names."""
    given = {"Content-Type": "text/plain", "MessageType": "MT_EVENT", "tenant": "nörd"}

    copy = rejected(given, "line one\r\nline two \ud800")
    seen = headers_of(block_of(encode(copy, stream="dead")))

    assert seen.items() >= given.items()
    assert seen[names.REJECTION_REASON] == "DeliveryError"
    assert seen[names.REJECTION_DETAIL] == "line one  line two"
    assert seen[names.ORIGINAL_TOPIC] == "jobs"
    assert seen[names.ORIGINAL_TYPE] == "MT_EVENT"
    assert seen[names.ATTEMPTS] == "2"
    assert names.NATIVE not in seen
    assert decode(seen, b"{}", stored_as="dead-1") == copy


def test_when_our_own_message_is_rejected_then_strangers_read_why() -> None:
    """R28."""
    ours = Message(body=b"{}", type="Job", headers={"tenant": "n", "no name": "x", "Nats-TTL": "1"})

    seen = encode(rejected(encode(ours, stream="jobs")), stream="dead")

    assert (seen[names.REJECTION_REASON], seen["tenant"]) == ("DeliveryError", "n")
    assert not {"no name", "Nats-TTL"} & seen.keys()


def test_when_headers_would_make_a_copy_too_large_then_they_are_packed_only() -> None:
    copy = rejected({"tenant": "north"})

    packed = encode(copy, stream="dead", max_bytes=400)

    assert names.REJECTION_REASON not in packed
    assert decode(packed, b"{}", stored_as="dead-1") == copy


@given(messages, texts)
def test_when_any_rejected_message_is_encoded_then_its_size_is_what_the_server_counts_too(
    message: Message, reason: str
) -> None:
    message = Message(body=b"", headers={**message.headers, names.REJECTION_REASON: reason})

    headers = encode(message, stream="orders")

    assert size_of(headers, b"") == len(block_of(headers))
    assert carried(message) == message

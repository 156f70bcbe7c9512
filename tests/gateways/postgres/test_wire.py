"""Messages to rows and back."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from gateways.postgres.wire import (
    Receipt,
    Row,
    envelope_of,
    message_of,
    octets_of,
    text_of,
)
from pump import headers
from pump.message import Message
from pump.testing.builders import a_message


def row_of(message: Message | None, body: bytes, **fields: object) -> Row:
    envelope = None if message is None else envelope_of(message)
    known = {"moved_at_s": None, "moved_attempt": None, "moved_from": None, **fields}
    return Row(7, 2, 1, 3, envelope=envelope, body=body, **known)  # type: ignore[arg-type]


@given(text=st.text(st.characters()), body=st.binary())
def test_when_a_message_becomes_a_row_then_every_field_comes_back(text: str, body: bytes) -> None:
    sent = a_message(body, type=text, group=text, deduplication_id=text, headers={text: text})

    envelope = envelope_of(sent)

    assert envelope.isascii()
    assert "\0" not in envelope
    assert message_of(row_of(sent, body), "orders") == sent


@given(text=st.text(st.characters()))
def test_when_a_group_becomes_octets_then_it_comes_back(text: str) -> None:
    assert text_of(octets_of(text) or b"") == text


@pytest.mark.parametrize("envelope", [None, "", "{}", "null", '{"v":2,"id":"x"}', "\x7f"])
def test_when_a_row_is_not_ours_then_its_bytes_are_delivered_as_they_are(
    envelope: str | None,
) -> None:
    row = row_of(None, b"\xff{")._replace(envelope=envelope)

    message = message_of(row, "orders")

    assert (message.body, message.type, message.id) == (b"\xff{", "", "orders-7")


def test_when_the_servers_limit_moved_it_then_the_dead_letter_says_from_where() -> None:
    sent = a_message(type="Order")
    row = row_of(sent, sent.body, moved_from="orders", moved_attempt=3, moved_at_s=1_750_000_000.0)

    message = message_of(row, "orders-dead")

    assert message.id == sent.id
    assert message.headers[headers.ORIGINAL_TOPIC] == "orders"
    assert message.headers[headers.ATTEMPTS] == "3"
    assert message.headers[headers.REJECTION_TIMESTAMP].startswith("2025-06-15")


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1))
def test_when_a_receipt_is_written_then_it_is_read_again(
    seq: int, delivery: int, lease: int
) -> None:
    receipt = Receipt(seq, delivery, lease)

    assert Receipt.read(str(receipt)) == receipt


@pytest.mark.parametrize(
    "text", ["", "1", "1.2", "1.2.3.4", "a.2.3", "-1.2.3", "1.2.٣", f"{2**63}.1.1", f"1.{2**31}.1"]
)
def test_when_a_receipt_is_none_of_ours_then_it_is_none(text: str) -> None:
    assert Receipt.read(text) is None

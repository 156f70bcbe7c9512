"""Headers that the SDK cannot take apart are made legible: what is sound in them stays."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from pamqp.header import ContentHeader

from gateways.rabbitmq.amqp import sanitized

from .odd_headers import (
    CONTENT_TYPE,
    HEADERS,
    MESSAGE_ID,
    MICROSECONDS,
    ODD,
    TIMESTAMP,
    TYPE,
    counted,
    header_of,
    properties,
    table,
    text,
)


def read(header: bytes) -> ContentHeader:
    found = ContentHeader()
    found.unmarshal(header)
    return found


@pytest.mark.parametrize("written", ODD.values(), ids=ODD)
def test_when_the_sdk_cannot_read_a_header_then_it_can_afterwards(written: bytes) -> None:
    header = header_of(b"body", written)
    with pytest.raises((ValueError, OverflowError, RecursionError)):
        read(header)

    made = sanitized(header)

    assert len(made) == len(header)
    assert read(made).body_size == len(b"body")


def test_when_one_part_cannot_be_read_then_all_others_stay() -> None:
    entries = [
        (b"x-delivery-count", b"l" + (3).to_bytes(8)),
        (b"\xffname", b"S" + counted(b"kept")),
        (b"at", b"T" + MICROSECONDS),
        (b"raw", b"S" + counted(b"\xfe")),
    ]
    written = properties(
        CONTENT_TYPE | HEADERS | MESSAGE_ID | TIMESTAMP | TYPE,
        text("naïve".encode()),
        table(*entries),
        text(b"id-\xff"),
        MICROSECONDS,
        text(b"Job"),
    )

    found = read(sanitized(header_of(b"", written))).properties

    assert (found.content_type, found.message_id, found.message_type) == ("naïve", "id-?", "Job")
    assert found.headers == {"x-delivery-count": 3, "?name": "kept", "raw": b"\xfe"}
    assert found.timestamp is None


def test_when_the_sdk_can_read_a_header_then_not_an_octet_is_changed() -> None:
    header = header_of(b"", properties(MESSAGE_ID, text(b"m-1")))

    assert sanitized(header) is header


@given(flags=st.integers(0, 0xFFFF), octets=st.binary(max_size=300))
def test_when_a_header_is_garbage_then_it_can_be_read_afterwards(flags: int, octets: bytes) -> None:
    header = header_of(b"x", properties(flags, octets))

    made = sanitized(header)

    assert len(made) == len(header)
    read(made)

"""Envelopes: the text that is sent stays what it is, and any text is read (R56)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, strategies as st

from gateways._kit.envelope import (
    exact_json,
    field_named,
    foreign_text,
    pack,
    read_exact,
    read_packed,
    unpacked,
)
from pump.message import Message

WHOLE = Message(
    body=b"body",
    id="m-1",
    type="Greet",
    content_type="text/plain",
    correlation_id="c-1",
    reply_to="replies",
    group="g-1",
    deduplication_id="d-1",
    created_at_s=1.5,
    headers={"tenant": "Ägir"},
)
texts = st.text(st.characters(), max_size=8)  # surrogates too


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (Message(body=b"", id="m-1"), '{"v":1,"id":"m-1"}'),
        (
            WHOLE,
            '{"v":1,"id":"m-1","type":"Greet","ct":"text/plain","cid":"c-1","to":"replies",'
            '"g":"g-1","d":"d-1","at":1.5,"h":{"tenant":"\\u00c4gir"}}',
        ),
        (Message(body=b"", id="\ud800"), '{"v":1,"id":"\\ud800"}'),
    ],
)
def test_when_a_message_is_packed_then_the_text_is_what_others_read(
    message: Message, text: str
) -> None:
    """Messages are in queues for days: both ends of one may be of different versions."""
    assert pack(message) == text


def test_when_a_body_does_not_travel_as_it_is_then_the_envelope_says_how() -> None:
    text = pack(Message(body=b"", id="m-1"), "base64")

    assert text == '{"v":1,"id":"m-1","e":"base64"}'
    assert (read := read_packed(text)) is not None
    assert read.encoding == "base64"


@given(
    st.builds(
        Message,
        body=st.binary(max_size=4),
        id=texts.filter(bool),
        type=texts,
        group=st.none() | texts,
        created_at_s=st.none() | st.floats(allow_nan=False, allow_infinity=False),
        headers=st.dictionaries(texts, texts, max_size=3),
    )
)
def test_when_a_message_is_packed_then_it_is_ascii_and_read_back(message: Message) -> None:
    text = pack(message)

    packed = read_packed(text)

    assert text.isascii()
    assert packed is not None
    assert unpacked(packed, message.body) == message


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"v":1,"id":""}', '{"v":2,"id":"a"}', '{"v":1,"id":3}', "[" * 100_000],
)
def test_when_an_envelope_is_not_readable_then_it_is_none(text: str) -> None:
    assert read_packed(text) is None


@pytest.mark.parametrize("time", ["NaN", "Infinity", "-Infinity"])
def test_when_the_time_is_no_number_then_there_is_none(time: str) -> None:
    packed = read_packed(f'{{"v":1,"id":"a","at":{time}}}')

    assert packed is not None
    assert unpacked(packed, b"").created_at_s is None


@pytest.mark.parametrize(
    ("exact", "text"),
    [
        ({"group": "ä", "headers": {"x-a": ""}}, '{"group":"ä","headers":{"x-a":""}}'),
        ({"group": "\ud800"}, '{"group": "\\ud800"}'),
    ],
)
def test_when_exact_fields_are_written_then_they_are_read_back(
    exact: dict[str, Any], text: str
) -> None:
    assert exact_json(exact) == text
    assert read_exact(text) == exact


@pytest.mark.parametrize("text", [None, 3, b"{}", "", "[]", "3", "{", "[" * 100_000])
def test_when_exact_fields_are_not_readable_then_there_are_none(text: object) -> None:
    assert read_exact(text) == {}


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("messageType", "type"),
        ("message-type", "type"),
        ("Message_Type", "type"),
        ("Content-Type", "content_type"),
        ("correlation.id", "correlation_id"),
        ("reply-to", "reply_to"),
        ("tenant", None),
    ],
)
def test_when_another_program_names_a_field_then_it_is_found(name: str, field: str | None) -> None:
    assert field_named(name) == field


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"\xc3\xa4", "ä"),
        (b"\xff", "/w=="),
        (None, ""),
        (True, "true"),
        ([1, "a"], '[1,"a"]'),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
    ],
)
def test_when_a_header_is_no_text_then_it_becomes_some(value: object, text: str) -> None:
    assert foreign_text(value) == text

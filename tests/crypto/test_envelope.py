"""The envelope: its bytes, its published vectors, and whatever else somebody may send."""

from __future__ import annotations

import itertools
import struct
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import example, given, strategies as st

from pump.crypto import Key, MalformedEnvelope, UnsupportedVersion, aes
from pump.crypto.envelope import (
    associated_data,
    is_envelope,
    make_header,
    moment,
    parse,
)
from pump.message import JSON, Message
from tests.docs.markdown import json_after

PAGE = Path(__file__).parents[2] / "docs" / "encryption-format.md"
VECTORS: list[dict[str, Any]] = [
    *({"version": 1, **vector} for vector in json_after(PAGE, "test vectors")),
    *({"version": 2, **vector} for vector in json_after(PAGE, "test vectors, version 2")),
]
HEADER = make_header(b"k", 1, b"n" * 12)
texts = st.none() | st.text(max_size=5)


def by_other_means(vector: dict[str, Any]) -> tuple[bytes, bytes]:
    """The associated data and the body, computed from the page's words and not by our code."""

    def field(text: str | None) -> bytes:
        if text is None:
            return b"\x00"
        return b"\x01" + struct.pack(">I", len(text.encode())) + text.encode()

    key_id, nonce = vector["key_id"].encode(), bytes.fromhex(vector["nonce"])
    header = b"QRE1" + bytes([vector["version"]]) + struct.pack(">H", len(key_id)) + key_id
    header += struct.pack(">Q", vector["encrypted_at_ms"]) + nonce
    ids = [vector[name] for name in ("message_id", "group", "correlation_id")]
    if vector["version"] == 2:
        queue = (vector["queue"] or "").encode()
        header += struct.pack(">H", len(queue)) + queue
        ids += [vector[name] for name in ("type", "content_type", "reply_to")]
    associated = struct.pack(">I", len(header)) + header + b"".join(map(field, ids))
    encryptor = Cipher(algorithms.AES(bytes.fromhex(vector["key"])), modes.GCM(nonce)).encryptor()
    encryptor.authenticate_additional_data(associated)
    ciphertext = encryptor.update(bytes.fromhex(vector["plaintext"])) + encryptor.finalize()
    return associated, header + ciphertext + encryptor.tag


def message_of(vector: dict[str, Any]) -> Message:
    return Message(
        body=bytes.fromhex(vector["body"]),
        id=vector["message_id"],
        group=vector["group"],
        correlation_id=vector["correlation_id"],
        type=vector.get("type", ""),
        content_type=vector.get("content_type", JSON),
        reply_to=vector.get("reply_to"),
    )


def test_there_are_vectors() -> None:
    assert {vector["version"] for vector in VECTORS} == {1, 2}
    assert len(VECTORS) >= 9


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_a_published_vector_is_what_an_independent_computation_gives(
    vector: dict[str, Any],
) -> None:
    associated, body = by_other_means(vector)

    assert associated.hex() == vector["associated_data"]
    assert body.hex() == vector["body"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_when_a_vector_is_sealed_by_us_then_it_has_the_published_bytes(
    vector: dict[str, Any],
) -> None:
    """R72."""
    key = Key(vector["key_id"], bytes.fromhex(vector["key"]))
    nonce = bytes.fromhex(vector["nonce"])
    header = make_header(
        key.id_bytes,
        vector["encrypted_at_ms"],
        nonce,
        version=vector["version"],
        queue=vector.get("queue"),
    )
    associated = associated_data(header, message_of(vector))
    plaintext = bytes.fromhex(vector["plaintext"])

    sealed = aes.encrypt(key, plaintext, nonce=nonce, associated=associated)

    assert associated.hex() == vector["associated_data"]
    assert (header + sealed).hex() == vector["body"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_when_a_vector_is_opened_by_us_then_it_has_the_published_plaintext(
    vector: dict[str, Any],
) -> None:
    key, message = Key(vector["key_id"], bytes.fromhex(vector["key"])), message_of(vector)

    envelope = parse(message.body)
    associated = associated_data(envelope.header, message)

    assert (envelope.version, envelope.queue) == (vector["version"], vector.get("queue"))
    assert (envelope.key_id, envelope.encrypted_at_ms, envelope.nonce.hex()) == (
        vector["key_id"],
        vector["encrypted_at_ms"],
        vector["nonce"],
    )
    assert aes.decrypt(key, envelope, associated=associated).hex() == vector["plaintext"]


@given(
    key_id=st.text(st.characters(codec="utf-8"), min_size=1, max_size=40),
    ms=st.integers(0, 2**64 - 1),
    nonce=st.binary(min_size=12, max_size=12),
    sealed=st.binary(min_size=16, max_size=60),
)
def test_when_an_envelope_is_parsed_then_it_has_what_it_was_made_of(
    key_id: str, ms: int, nonce: bytes, sealed: bytes
) -> None:
    header = make_header(key_id.encode(), ms, nonce)

    envelope = parse(header + sealed)

    assert envelope == (key_id, ms, nonce, header, sealed)


def test_when_a_key_id_is_as_long_as_can_be_then_it_is_parsed() -> None:
    """A wrapped data key of KMS travels in it."""
    key_id = b"x" * 65_535

    assert parse(make_header(key_id, 1, b"n" * 12) + b"t" * 16).key_id == key_id.decode()


@pytest.mark.parametrize(
    ("key_id", "nonce"), [(b"", b"n" * 12), (b"x" * 65_536, b"n" * 12), (b"k", b"n" * 11)]
)
def test_when_a_part_does_not_fit_then_no_header_is_made(key_id: bytes, nonce: bytes) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        make_header(key_id, 1, nonce)


@given(
    version=st.sampled_from([1, 2]),
    key_id=st.text(st.characters(codec="utf-8"), min_size=1, max_size=9),
    queue=st.none() | st.text(st.characters(codec="utf-8"), min_size=1, max_size=9),
    sealed=st.binary(min_size=16, max_size=60),
)
def test_when_a_version_is_made_then_it_is_parsed_with_its_queue(
    version: int, key_id: str, queue: str | None, sealed: bytes
) -> None:
    queue = queue if version == 2 else None
    header = make_header(key_id.encode(), 7, b"n" * 12, version=version, queue=queue)

    envelope = parse(header + sealed)

    assert envelope == (key_id, 7, b"n" * 12, header, sealed)
    assert (envelope.version, envelope.queue) == (version, queue)


@pytest.mark.parametrize(("version", "queue"), [(1, "orders"), (2, "x" * 65_536)])
def test_when_a_queue_does_not_fit_then_no_header_is_made(version: int, queue: str) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        make_header(b"k", 1, b"n" * 12, version=version, queue=queue)


@pytest.mark.parametrize(
    "whole",
    [HEADER + b"t" * 16, make_header(b"k", 1, b"n" * 12, version=2, queue="q\xfc") + b"t" * 16],
)
def test_when_an_envelope_is_cut_anywhere_then_it_is_malformed(whole: bytes) -> None:
    for size in range(len(whole)):
        with pytest.raises(MalformedEnvelope):
            parse(whole[:size])
    parse(whole)


@pytest.mark.parametrize("version", [0, 3, 32, 255])
def test_when_the_version_is_unknown_then_the_error_says_which(version: int) -> None:
    """R72."""
    for rest in (b"", b"anything at all, of any length"):
        with pytest.raises(UnsupportedVersion, match=f"version {version},") as caught:
            parse(b"QRE1" + bytes([version]) + rest)

        assert caught.value.version == version


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"", "does not start with QRE1"),
        (b"QRE0" + HEADER[4:] + b"t" * 16, "does not start with QRE1"),
        (b"QRE1\x01\x00\x00" + b"t" * 99, "key id is empty"),
        (b"QRE1\x01\x00\x02\xc3\x28" + b"t" * 99, "not UTF-8"),
        # An encoding that is longer than it need be, and half of a pair: neither is UTF-8.
        (b"QRE1\x01\x00\x02\xc1\x81" + b"t" * 99, "not UTF-8"),
        (b"QRE1\x01\x00\x03\xed\xa0\x80" + b"t" * 99, "not UTF-8"),
        (b"QRE1\x01\xff\xff" + b"t" * 99, "asks for"),
    ],
)
def test_when_a_body_is_no_envelope_then_the_error_says_why(body: bytes, detail: str) -> None:
    with pytest.raises(MalformedEnvelope, match=detail):
        parse(body)


@given(st.binary(max_size=80) | st.binary(max_size=80).map(lambda tail: b"QRE1\x01" + tail))
@example(b"QRE1")
@example(b"QRE1\x01\x00")
def test_when_any_bytes_are_parsed_then_nothing_but_the_two_errors_is_raised(body: bytes) -> None:
    try:
        envelope = parse(body)
    except (MalformedEnvelope, UnsupportedVersion):
        return
    assert envelope.header + envelope.ciphertext == body


@given(
    tail=st.binary(max_size=64),
    edits=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=6),
    cut=st.integers(0, 120),
)
def test_when_a_mutated_envelope_is_parsed_then_nothing_but_the_two_errors_is_raised(
    tail: bytes, edits: list[tuple[int, int]], cut: int
) -> None:
    body = bytearray(make_header(b"2026-01", 1_750_000_000_000, b"n" * 12) + tail)
    for position, value in edits:
        body[position % len(body)] = value

    try:
        envelope = parse(bytes(body[:cut]))
    except (MalformedEnvelope, UnsupportedVersion):
        return
    assert len(envelope.nonce) == 12
    assert len(envelope.ciphertext) >= 16
    assert moment(envelope.encrypted_at_ms).tzinfo is UTC


def test_when_a_body_is_looked_at_then_its_first_bytes_say_whether_it_is_sealed() -> None:
    """R74."""
    assert is_envelope(b"QRE1 whatever")
    assert not any(map(is_envelope, (b"", b"QRE", b"qre1", b"{}", b" QRE1")))


def test_when_fields_differ_then_so_does_the_associated_data() -> None:
    """T9: length-prefixed, so that no field can take over a part of another one."""
    values = (None, "", "a", "b", "ab", "\x00", "\x01", "a\x00")
    pairs = {
        associated_data(HEADER, Message(body=b"", id=id_, group=group, correlation_id=correlation))
        for id_, group, correlation in itertools.product(values[1:], values, values)
    }

    assert len(pairs) == 7 * 8 * 8


@given(one=st.tuples(st.text(max_size=5), texts, texts), two=st.tuples(st.text(), texts, texts))
def test_when_any_ids_differ_then_so_does_the_associated_data(
    one: tuple[str, str | None, str | None], two: tuple[str, str | None, str | None]
) -> None:
    first, second = (
        associated_data(HEADER, Message(body=b"", id=id_, group=group, correlation_id=correlation))
        for id_, group, correlation in (one, two)
    )

    assert (first == second) == (one == two)


def test_when_an_id_holds_half_a_character_then_it_is_covered_all_the_same() -> None:
    lone, other = (Message(body=b"", id=f"m\ud83d{end}") for end in ("", "x"))

    assert associated_data(HEADER, lone) != associated_data(HEADER, other)


def test_when_a_time_is_past_every_calendar_then_it_is_cut_to_its_end() -> None:
    assert moment(0) == datetime(1970, 1, 1, tzinfo=UTC)
    assert moment(1_750_000_000_123) == datetime(2025, 6, 15, 15, 6, 40, 123_000, UTC)
    assert moment(2**64 - 1).year == 9999

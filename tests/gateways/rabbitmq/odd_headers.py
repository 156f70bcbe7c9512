"""Headers that no SDK would write, octet by octet, and a stranger who publishes with them."""

from __future__ import annotations

import struct
from typing import cast

import aiormq
import pamqp.frame
from aiormq.abc import ChannelFrame
from aiormq.channel import Channel
from pamqp.body import ContentBody
from pamqp.commands import Basic

MICROSECONDS = struct.pack(">Q", 1_700_000_000_000_000)
TOO_LATE = b"\xff" * 8


def text(octets: bytes) -> bytes:
    return bytes([len(octets)]) + octets


def counted(octets: bytes) -> bytes:
    return struct.pack(">I", len(octets)) + octets


def table(*entries: tuple[bytes, bytes]) -> bytes:
    return counted(b"".join(text(name) + value for name, value in entries))


def properties(flags: int, *parts: bytes) -> bytes:
    return struct.pack(">H", flags) + b"".join(parts)


def nested(depth: int) -> bytes:
    inner = b""
    for _ in range(depth):
        inner = text(b"t") + b"F" + counted(inner)
    return counted(inner)


CONTENT_TYPE, HEADERS, MESSAGE_ID, TIMESTAMP, TYPE = 1 << 15, 1 << 13, 1 << 7, 1 << 6, 1 << 5
ODD = {
    "a time in microseconds": properties(TIMESTAMP, MICROSECONDS),
    "a time that no machine counts": properties(TIMESTAMP, TOO_LATE),
    "a content type that is no text": properties(CONTENT_TYPE, text(b"\xff\xfe")),
    "a name that is no text": properties(HEADERS, table((b"\xff", b"S" + counted(b"v")))),
    "a header with a time in microseconds": properties(
        HEADERS, table((b"at", b"T" + MICROSECONDS))
    ),
    "tables in tables": properties(HEADERS, nested(2_000)),
}


def header_of(body: bytes, written: bytes) -> bytes:
    """The content of a header frame."""
    return struct.pack(">HxxQ", 60, len(body)) + written


async def publish(url: str, queue: str, body: bytes, written: bytes) -> None:
    connection = await aiormq.connect(url)
    try:
        channel = cast(Channel, await connection.channel(publisher_confirms=False))
        number, header = channel.number, header_of(body, written)
        frames = [
            pamqp.frame.marshal(Basic.Publish(routing_key=queue), number),
            struct.pack(">BHI", 2, number, len(header)) + header + b"\xce",
            pamqp.frame.marshal(ContentBody(body), number),
        ]
        await channel.write_queue.put(ChannelFrame(payload=b"".join(frames), should_close=False))
        await channel.flow(True)
    finally:
        await connection.close()

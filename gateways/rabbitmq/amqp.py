"""The SDK's edge: the only module that loads aiormq, when a gateway is opened.

The SDK writes each publish and each ack to the socket by itself. Here all of a batch are one
write, which is worth a factor of four; the SDK still does the rest.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, cast
from urllib.parse import quote
from weakref import WeakKeyDictionary

import aiormq
import attrs
import pamqp.frame
from aiormq.abc import ChannelFrame, DeliveredMessage
from aiormq.channel import Channel
from aiormq.connection import Connection, TCPTransportFactory, TLSTransportFactory, TransportFactory
from pamqp import decode
from pamqp.body import ContentBody
from pamqp.commands import Basic
from pamqp.constants import FRAME_HEADER
from pamqp.header import ContentHeader
from yarl import URL

from pump.errors import MessageTooLarge

from .settings import RabbitMQSettings
from .settling import Outstanding
from .wire import Parcel

PERSISTENT = 2
_ACK = struct.Struct(">BHIHHQBB")
"""A whole method frame: type, channel, size, class, method, delivery tag, flags, end."""
_MULTIPLE, _REQUEUE = 1, 2
_FRAME_BYTES = 8
"""Of a frame beside what is in it."""
_UNREAD = (aiormq.exceptions.InvalidFrameError, ValueError, OverflowError, RecursionError)
"""What the SDK's reader ends with at a header that it cannot take apart."""
Received = DeliveredMessage
__all__ = ["Channel", "Connection", "Received"]
_PROPERTIES = {
    "content_type": "content_type",
    "content_encoding": "content_encoding",
    "correlation_id": "correlation_id",
    "reply_to": "reply_to",
    "message_id": "message_id",
    "timestamp": "timestamp",
    "type": "message_type",
    "app_id": "app_id",
}
"""The properties a message keeps when it is sent again, by AMQP's name and the SDK's. Neither the
time to live nor the user's name is among them: both would be judged anew."""


async def connect(settings: RabbitMQSettings, *, sanitizes_headers: bool) -> Connection:
    """A connection, without any recovery of the SDK's own; one that sanitizes headers is
    stopped by none, and takes each apart twice for it.
    """
    transport = _Transport(is_tls=settings.is_tls, sanitizes_headers=sanitizes_headers)
    connection = await aiormq.connect(_url(settings), transport_factory=transport)
    _TRANSPORTS[connection] = transport
    return connection


def abort(connection: Connection) -> None:
    """Cut a connection off, with what was not sent: closing it would wait for a broker that reads
    nothing, perhaps for ever.
    """
    if (transport := _TRANSPORTS.get(connection)) is not None:
        transport.abort()


def has_met_unreadable(connection: Connection) -> bool:
    """Whether a connection that is closed ended over something that the SDK could not read."""
    closing = connection.closing
    if not closing.done() or closing.cancelled():
        return False
    return isinstance(closing.exception(), _UNREAD)


async def open_channel(connection: Connection, *, confirms: bool) -> Channel:
    """A channel; a message that no queue takes is an answer on it, not an error."""
    opened = await connection.channel(publisher_confirms=confirms, on_return_raises=False)
    return cast(Channel, opened)


def server_version(connection: Connection) -> str:
    """What the broker says it is, empty when it does not."""
    return str(getattr(connection, "server_properties", {}).get("version", ""))


async def is_locked(channel: Channel, name: str) -> bool:
    """Whether another connection has the lock of this name; if not, this connection has it now,
    until it closes or removes it. After a yes, the channel is closed.

    A queue that is exclusive is there for one connection, and ends with it.
    """
    try:
        await channel.queue_declare(name, exclusive=True)
    except aiormq.exceptions.ChannelLockedResource:
        return True
    return False


async def subscribe(
    channel: Channel,
    queue: str,
    tag: str,
    on_received: Callable[[Received], Coroutine[Any, Any, None]],
) -> None:
    """Begin to receive under a tag of the caller's, without waiting for an answer: there is one
    only if it fails, and that closes the channel.
    """
    channel.consumers[tag] = on_received
    frame = Basic.Consume(queue=queue, consumer_tag=tag, nowait=True)
    await _write(channel, [pamqp.frame.marshal(frame, channel.number)])


async def unsubscribe(channel: Channel, tags: Sequence[str]) -> None:
    """Receive no more under these tags; return when the broker has said so for all of them."""
    frames = [Basic.Cancel(consumer_tag=tag, nowait=True) for tag in tags]
    try:
        await _write(channel, [pamqp.frame.marshal(each, channel.number) for each in frames])
        # The channel's frames are handled one after the other.
        await channel.flow(True)
    finally:
        for tag in tags:
            channel.consumers.pop(tag, None)


async def publish(
    channel: Channel, addressed: Sequence[tuple[str, Parcel]]
) -> list[asyncio.Future[Any]]:
    """Send each to the queue named with it, all in one write, and return what will hold the
    answers.

    For one caller at a time, which must not be cancelled: confirms are counted from here on. The
    message ids must be distinct: a returned message is told by it. One whose headers are over what
    a frame holds is not sent: the broker would close the connection for it.
    """
    # All of them before the first is counted: one that cannot be written would shift every confirm
    # after it to the message before.
    packed = _packed(channel, addressed)
    answers: list[asyncio.Future[Any]] = []
    frames: list[bytes] = []
    for (queue, parcel), part in zip(addressed, packed, strict=True):
        answer = channel.create_future()
        answers.append(answer)
        if (size := len(part.header) - _FRAME_BYTES) > channel.max_content_size:
            if not answer.done():
                answer.set_exception(MessageTooLarge(queue, size, channel.max_content_size))
            continue
        frames += [part.method, part.header, *_body_frames(channel, parcel.body)]
        channel.delivery_tag += 1
        channel.confirmations[channel.delivery_tag] = answer
        channel.message_id_delivery_tag[part.message_id] = channel.delivery_tag
    await _write(channel, frames)
    return answers


def forget(channel: Channel, parcels: Iterable[Parcel]) -> None:
    """Their answers are here."""
    for parcel in parcels:
        channel.message_id_delivery_tag.pop(str(parcel.properties.get("message_id")), None)


async def tell(
    channel: Channel, outstanding: Outstanding, *, done: Sequence[int], undone: Sequence[int] = ()
) -> None:
    """Ack and requeue by delivery tag, in one write; return when the broker has taken it in."""
    number = channel.number
    async with outstanding.telling:
        acks = outstanding.settle(done, undone)
        frames = [_ACK.pack(1, number, 13, 60, 120, tag, _REQUEUE, 206) for tag in undone]
        if acks.up_to is not None:
            frames.append(_ACK.pack(1, number, 13, 60, 80, acks.up_to, _MULTIPLE, 206))
        frames += [_ACK.pack(1, number, 13, 60, 80, tag, 0, 206) for tag in acks.singly]
        await _write(channel, frames)
    # The channel's frames are handled one after the other.
    await channel.flow(True)


def properties_of(parcel: Parcel) -> Basic.Properties:
    """What is published with a parcel's body."""
    named = {_PROPERTIES[name]: value for name, value in parcel.properties.items()}
    return Basic.Properties(delivery_mode=PERSISTENT, headers=dict(parcel.headers), **named)


def parcel_of(received: Received) -> Parcel:
    """What was delivered."""
    found = received.header.properties
    properties: dict[str, Any] = {}
    for name, theirs in _PROPERTIES.items():
        if (value := getattr(found, theirs)) is not None:
            properties[name] = value
    headers: Mapping[str, Any] = found.headers or {}
    return Parcel(body=received.body, properties=properties, headers=headers)


def is_empty(received: Received) -> bool:
    """Whether a get has found nothing."""
    return isinstance(received.delivery, Basic.GetEmpty)


def is_confirmed(answer: object) -> bool:
    """Whether a publish was taken. A message that no queue took comes back instead."""
    return isinstance(answer, Basic.Ack)


@attrs.frozen
class _Packed:
    """A publish as it is written, but for the body."""

    message_id: str
    method: bytes
    header: bytes


def _packed(channel: Channel, addressed: Sequence[tuple[str, Parcel]]) -> list[_Packed]:
    methods: dict[str, bytes] = {}
    packed: list[_Packed] = []
    for queue, parcel in addressed:
        if (method := methods.get(queue)) is None:
            publish = Basic.Publish(routing_key=queue, mandatory=True)
            method = methods[queue] = pamqp.frame.marshal(publish, channel.number)
        properties = properties_of(parcel)
        header = ContentHeader(properties=properties, body_size=len(parcel.body))
        octets = pamqp.frame.marshal(header, channel.number)
        packed.append(_Packed(str(properties.message_id), method, octets))
    return packed


def _body_frames(channel: Channel, body: bytes) -> list[bytes]:
    size = channel.max_content_size
    return [
        pamqp.frame.marshal(ContentBody(body[start : start + size]), channel.number)
        for start in range(0, len(body), size)
    ]


async def _write(channel: Channel, frames: Sequence[bytes]) -> None:
    if channel.is_closed or channel.connection.is_closed:
        raise aiormq.exceptions.ChannelInvalidStateError(f"channel {channel.number} is closed")
    if frames:
        written = ChannelFrame(payload=b"".join(frames), should_close=False)
        # As the channel's own task it ends with the channel; a queue that is read no more
        # would be waited for for ever.
        await channel.create_task(channel.write_queue.put(written))


def _url(settings: RabbitMQSettings) -> URL:
    query = {
        "heartbeat": str(settings.heartbeat_s),
        "name": settings.name,
        "cafile": settings.ca_file,
        "certfile": settings.cert_file,
        "keyfile": settings.key_file,
    }
    base = URL.build(
        scheme="amqps" if settings.is_tls else "amqp",
        user=settings.user,
        password=settings.password.reveal(),
        host=settings.host,
        port=settings.port,
        query={key: value for key, value in query.items() if value is not None},
    )
    return base.with_path("/" + quote(settings.vhost, safe=""), encoded=True, keep_query=True)


# A transport that can be cut off, and that no message stops: where it sanitizes headers, the
# SDK can read all of them.


class _Transport(TransportFactory):
    """Has the SDK read through a `_SanitizingReader` where it is to."""

    def __init__(self, *, is_tls: bool, sanitizes_headers: bool) -> None:
        self._transport = TLSTransportFactory() if is_tls else TCPTransportFactory()
        self._sanitizes_headers = sanitizes_headers
        self._writer: asyncio.StreamWriter | None = None

    async def create(
        self, url: URL, **options: Any
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, self._writer = await self._transport.create(url, **options)
        if self._sanitizes_headers:
            reader = cast(asyncio.StreamReader, _SanitizingReader(reader))
        return reader, self._writer

    def abort(self) -> None:
        """Close at once, with what was not sent."""
        if self._writer is not None:
            self._writer.transport.abort()


_TRANSPORTS: WeakKeyDictionary[Connection, _Transport] = WeakKeyDictionary()
"""By connection: the SDK keeps a transport to itself."""


class _SanitizingReader:
    """A reader as far as the SDK uses it, which reads each frame in three parts: its type, where
    it belongs and how long it is, its content with an octet that ends it.
    """

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self.at_eof = reader.at_eof
        self.read = reader.read
        self._reader = reader
        self._part = 0
        self._type = 0

    async def readexactly(self, size: int) -> bytes:
        octets = await self._reader.readexactly(size)
        if self._part == 0:
            self._type = octets[0]
        elif self._part == 2 and self._type == FRAME_HEADER:
            octets = sanitized(octets[:-1]) + octets[-1:]
        self._part = (self._part + 1) % 3
        return octets


# Legible headers: those of another program's message, so that the SDK can parse them. Pure.
#
# The SDK fails at a header that has text which is no UTF-8, a time that no calendar has (AMQP
# counts seconds, and not every client does), or tables in tables without end. That ends its
# connection, and the same message, delivered again, the next one: it could keep every queue of a
# gateway from working. So what it cannot read is left out, or shown as far as it can be; the
# rest stays.

_HEAD_BYTES = 12
"""Class, weight and the size of the body; then come the flags of what follows."""


class _Kind(StrEnum):
    TEXT = "text"
    TABLE = "table"
    OCTET = "octet"
    TIME = "time"


_PROPERTY_KINDS = (
    *(_Kind.TEXT, _Kind.TEXT, _Kind.TABLE, _Kind.OCTET, _Kind.OCTET, _Kind.TEXT, _Kind.TEXT),
    *(_Kind.TEXT, _Kind.TEXT, _Kind.TIME, _Kind.TEXT, _Kind.TEXT, _Kind.TEXT, _Kind.TEXT),
)
"""In AMQP's order; the first has the highest of sixteen flags."""
_FIXED_BYTES = {
    **dict.fromkeys(b"tbB", 1),
    **dict.fromkeys(b"su", 2),
    **dict.fromkeys(b"Iif", 4),
    **dict.fromkeys(b"lLdT", 8),
    **dict.fromkeys(b"D", 5),
    **dict.fromkeys(b"V\0", 0),
}
"""How long the values in a table are, by their types; all others begin with their length."""


def sanitized(header: bytes) -> bytes:
    """The content of a header frame, as long as it was: itself where the SDK can read it."""
    if _is_readable(header):
        return header
    [flags] = struct.unpack_from(">H", header, _HEAD_BYTES)
    kept, parts = 0, [b""]
    for number, part in _properties(flags, header[_HEAD_BYTES + 2 :]):
        if part is not None:
            kept |= 1 << 15 - number
            parts.append(part)
    written = header[:_HEAD_BYTES] + struct.pack(">H", kept) + b"".join(parts)
    # What is behind the last property is not read.
    return written.ljust(len(header), b"\0")


def _is_readable(header: bytes) -> bool:
    try:
        ContentHeader().unmarshal(header)
    except Exception:  # broad: whatever it fails with would end the connection
        return False
    return True


def _properties(flags: int, octets: bytes) -> Iterator[tuple[int, bytes | None]]:
    """Each property that there is, by its place; None for one that makes no sense."""
    for number, kind in enumerate(_PROPERTY_KINDS):
        if not flags & 1 << 15 - number:
            continue
        size = _size(kind, octets)
        part, octets = octets[:size], octets[size:]
        if len(part) < size:
            return
        yield number, _readable(kind, part)


def _size(kind: _Kind, octets: bytes) -> int:
    match kind:
        case _Kind.TEXT:
            return 1 + int.from_bytes(octets[:1])
        case _Kind.TABLE:
            return 4 + int.from_bytes(octets[:4])
        case _Kind.TIME:
            return 8
    return 1


def _readable(kind: _Kind, part: bytes) -> bytes | None:
    match kind:
        case _Kind.TEXT:
            return _text(part)
        case _Kind.TABLE:
            entries = b"".join(_entries(part[4:]))
            return len(entries).to_bytes(4) + entries
        case _Kind.TIME:
            return part if _can_be_read(b"T" + part) else None
    return part


def _text(part: bytes) -> bytes:
    """Text with its length before it; what is no text in it is a question mark."""
    text = part[1:]
    try:
        text.decode()
    except UnicodeDecodeError:
        text = text.decode("ascii", "replace").replace("\ufffd", "?").encode()
    return part[:1] + text


def _entries(octets: bytes) -> Iterator[bytes]:
    """Those entries of a table that can be read."""
    while octets:
        name = octets[: 1 + octets[0]]
        value = octets[len(name) :]
        if not value:
            return
        size = _FIXED_BYTES.get(value[0])
        size = 4 + int.from_bytes(value[1:5]) if size is None else size
        octets, value = value[1 + size :], value[: 1 + size]
        if len(value) == 1 + size and _can_be_read(value):
            yield _text(name) + value


def _can_be_read(value: bytes) -> bool:
    try:
        decode.embedded_value(value)
    except Exception:  # broad: as above
        return False
    return True

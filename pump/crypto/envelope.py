"""Envelope: the bytes of an encrypted body, and its associated data. Pure; no cryptography.

| bytes | field                                                    |
|-------|----------------------------------------------------------|
| 4     | `QRE1`                                                   |
| 1     | version, 1 or 2                                          |
| 2     | length of the key id, big endian, at least 1             |
| …     | key id, UTF-8                                            |
| 8     | encrypted-at, milliseconds since 1970 UTC, big endian    |
| 12    | nonce                                                    |
| 2     | version 2: length of the queue's name, 0 for none        |
| …     | version 2: the queue that it is bound to, UTF-8          |
| …     | ciphertext                                               |
| 16    | tag                                                      |

The tag of version 2 covers type, content type and reply-to besides what that of version 1 does.
`docs/encryption-format.md` says the same for other languages, with test vectors.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from ..message import Message
from ..ports import MAGIC
from .errors import MalformedEnvelope, UnsupportedVersion

VERSIONS: Final = (1, 2)
"""What is read. The last is what is written, unless an app is told otherwise."""
NONCE_SIZE: Final = 12
TAG_SIZE: Final = 16
MAX_KEY_ID_SIZE: Final = 0xFFFF
MAX_QUEUE_SIZE: Final = 0xFFFF
_BINDING_VERSION: Final = 2
"""The first whose header names a queue, and whose tag covers the type."""

_START = Struct(">4sBH")
_TIME = Struct(">Q")
_LENGTH = Struct(">I")
_QUEUE = Struct(">H")
_AFTER_KEY_ID = _TIME.size + NONCE_SIZE
_VERSION_AT = len(MAGIC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
_ABSENT = b"\x00"
_PRESENT = Struct(">?I")


class Envelope(NamedTuple):
    """A body taken apart. Nothing of it may be believed before its tag was checked."""

    key_id: str
    encrypted_at_ms: int
    nonce: bytes
    header: bytes
    """Everything before the ciphertext, as it stands in the body."""
    ciphertext: bytes
    """Ciphertext and tag."""

    @property
    def version(self) -> int:
        """Its version, one of `VERSIONS`."""
        return self.header[_VERSION_AT]

    @property
    def queue(self) -> str | None:
        """The queue that it was encrypted for, None when it is bound to none."""
        if self.version < _BINDING_VERSION:
            return None
        [key_id_size] = _QUEUE.unpack_from(self.header, _VERSION_AT + 1)
        queue_at = _START.size + key_id_size + _AFTER_KEY_ID + _QUEUE.size
        return _queue_text(self.header[queue_at:]) or None


def is_envelope(body: bytes) -> bool:
    """Whether a body is marked as encrypted; `parse` says whether it is a whole envelope."""
    return body.startswith(MAGIC)


def make_header(
    key_id: bytes,
    encrypted_at_ms: int,
    nonce: bytes,
    *,
    version: int = VERSIONS[0],
    queue: str | None = None,
) -> bytes:
    """Everything before the ciphertext. The key id has 1 to `MAX_KEY_ID_SIZE` bytes; a queue needs
    version 2.
    """
    if len(nonce) != NONCE_SIZE:
        raise ValueError(f"a nonce of {len(nonce)} bytes does not fit")
    start = _start_of(key_id, version)
    return start + _TIME.pack(encrypted_at_ms) + nonce + _end_of(version, queue)


@lru_cache(maxsize=16)
def _start_of(key_id: bytes, version: int) -> bytes:
    # Kept: one key encrypts many messages, one after the other.
    if not 0 < len(key_id) <= MAX_KEY_ID_SIZE:
        raise ValueError(f"a key id of {len(key_id)} bytes does not fit")
    return _START.pack(MAGIC, version, len(key_id)) + key_id


@lru_cache(maxsize=64)
def _end_of(version: int, queue: str | None) -> bytes:
    name = b"" if queue is None else queue.encode()
    if version < _BINDING_VERSION:
        if name:
            raise ValueError(f"a queue does not fit into version {version}")
        return b""
    if len(name) > MAX_QUEUE_SIZE:
        raise ValueError(f"a queue's name of {len(name)} bytes does not fit")
    return _QUEUE.pack(len(name)) + name


def parse(body: bytes) -> Envelope:
    """Take a body apart. Raises `UnsupportedVersion`, or `MalformedEnvelope` and nothing else."""
    if not body.startswith(MAGIC):
        raise MalformedEnvelope("it does not start with QRE1")
    if len(body) <= _VERSION_AT:
        raise MalformedEnvelope("it ends before its version")
    # Another version may be laid out otherwise, so nothing further is looked at.
    version = body[_VERSION_AT]
    if version not in VERSIONS:
        raise UnsupportedVersion(version)
    if len(body) < _START.size:
        raise MalformedEnvelope("it ends before its key id")
    _, _, key_id_size = _START.unpack_from(body)
    header_size = _START.size + key_id_size + _AFTER_KEY_ID
    if key_id_size == 0:
        raise MalformedEnvelope("its key id is empty")
    if len(body) < header_size + TAG_SIZE:
        raise MalformedEnvelope(
            f"it has {len(body)} bytes, and its header asks for {header_size + TAG_SIZE} or more"
        )
    key_id_end = _START.size + key_id_size
    nonce_end = header_size
    if version >= _BINDING_VERSION:
        header_size = _end_of_queue(body, nonce_end)
    return Envelope(
        _text(body[_START.size : key_id_end]),
        _TIME.unpack_from(body, key_id_end)[0],
        body[key_id_end + _TIME.size : nonce_end],
        body[:header_size],
        body[header_size:],
    )


def _end_of_queue(body: bytes, start: int) -> int:
    """Where the name of the queue ends that begins there, with its length."""
    [size] = _QUEUE.unpack_from(body, start)
    end: int = start + _QUEUE.size + size
    if len(body) < end + TAG_SIZE:
        raise MalformedEnvelope(
            f"it has {len(body)} bytes, and its header asks for {end + TAG_SIZE} or more"
        )
    _queue_text(body[start + _QUEUE.size : end])
    return end


def associated_data(header: bytes, message: Message) -> bytes:
    """What the tag covers besides the body, so that none of it can be changed unnoticed.

    The ids are the application's own, which survive dead-letter queues and redrive; a broker's
    do not. Each field says how long it is, and whether it is there at all, so no two messages
    that differ have the same associated data.
    """
    fields = (
        _LENGTH.pack(len(header)),
        header,
        _field(message.id),
        _field(message.group),
        _field(message.correlation_id),
    )
    if header[_VERSION_AT] < _BINDING_VERSION:
        return b"".join(fields)
    return b"".join(
        (
            *fields,
            _field(message.type),
            _field(message.content_type),
            _field(message.reply_to),
        )
    )


def moment(encrypted_at_ms: int) -> datetime:
    """An envelope's time as an aware datetime; what lies past year 9999 is cut to its end."""
    return _EPOCH + timedelta(milliseconds=min(encrypted_at_ms, _LAST_MS))


def _field(text: str | None) -> bytes:
    if text is None:
        return _ABSENT
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        # A lone surrogate is no character, but some provider may have let it into an id.
        encoded = text.encode("utf-8", "surrogatepass")
    return _PRESENT.pack(True, len(encoded)) + encoded


def _queue_text(name: bytes) -> str:
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedEnvelope("its queue's name is not UTF-8") from None


def _text(key_id: bytes) -> str:
    try:
        return key_id.decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedEnvelope("its key id is not UTF-8") from None

"""Envelope: the bytes of a sealed body, and what its seal covers besides. Pure; no cryptography.

| bytes | field                                                    |
|-------|----------------------------------------------------------|
| 4     | `QRE1`                                                   |
| 1     | version, 1                                               |
| 2     | length of the key id, big endian, at least 1             |
| …     | key id, UTF-8                                            |
| 8     | encrypted-at, milliseconds since 1970 UTC, big endian    |
| 12    | nonce                                                    |
| …     | ciphertext                                               |
| 16    | tag                                                      |

`docs/encryption-format.md` says the same for other languages, with test vectors.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from ..message import Message
from ..sealing import MAGIC
from .errors import MalformedEnvelope, UnsupportedVersion

VERSION: Final = 1
NONCE_SIZE: Final = 12
TAG_SIZE: Final = 16
MAX_KEY_ID_SIZE: Final = 0xFFFF

_START = Struct(">4sBH")
_TIME = Struct(">Q")
_LENGTH = Struct(">I")
_AFTER_KEY_ID = _TIME.size + NONCE_SIZE
_VERSION_AT = len(MAGIC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
_ABSENT = b"\x00"
_PRESENT = Struct(">?I")


class Envelope(NamedTuple):
    """A body taken apart. Nothing of it may be believed before its seal was checked."""

    key_id: str
    encrypted_at_ms: int
    nonce: bytes
    header: bytes
    """Everything before the ciphertext, as it stands in the body."""
    sealed: bytes
    """Ciphertext and tag."""


def is_envelope(body: bytes) -> bool:
    """Whether a body is marked as sealed; `parse` says whether it is a whole envelope."""
    return body.startswith(MAGIC)


def make_header(key_id: bytes, encrypted_at_ms: int, nonce: bytes) -> bytes:
    """Everything before the ciphertext. The key id has 1 to `MAX_KEY_ID_SIZE` bytes."""
    if len(nonce) != NONCE_SIZE:
        raise ValueError(f"a nonce of {len(nonce)} bytes does not fit")
    return _start_of(key_id) + _TIME.pack(encrypted_at_ms) + nonce


@lru_cache(maxsize=16)
def _start_of(key_id: bytes) -> bytes:
    # Kept: one key seals many messages, one after the other.
    if not 0 < len(key_id) <= MAX_KEY_ID_SIZE:
        raise ValueError(f"a key id of {len(key_id)} bytes does not fit")
    return _START.pack(MAGIC, VERSION, len(key_id)) + key_id


def parse(body: bytes) -> Envelope:
    """Take a body apart. Raises `UnsupportedVersion`, or `MalformedEnvelope` and nothing else."""
    if not body.startswith(MAGIC):
        raise MalformedEnvelope("it does not start with QRE1")
    if len(body) <= _VERSION_AT:
        raise MalformedEnvelope("it ends before its version")
    # Another version may be laid out otherwise, so nothing further is looked at.
    if body[_VERSION_AT] != VERSION:
        raise UnsupportedVersion(body[_VERSION_AT])
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
    return Envelope(
        _text(body[_START.size : key_id_end]),
        _TIME.unpack_from(body, key_id_end)[0],
        body[key_id_end + _TIME.size : header_size],
        body[:header_size],
        body[header_size:],
    )


def associated_data(header: bytes, message: Message) -> bytes:
    """What the seal covers besides the body, so that none of it can be changed unnoticed.

    The ids are the application's own, which survive dead-letter queues and redrive; a broker's
    do not. Each field says how long it is, and whether it is there at all, so no two messages
    that differ have the same associated data.
    """
    return b"".join(
        (
            _LENGTH.pack(len(header)),
            header,
            _field(message.id),
            _field(message.group),
            _field(message.correlation_id),
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


def _text(key_id: bytes) -> str:
    try:
        return key_id.decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedEnvelope("its key id is not UTF-8") from None

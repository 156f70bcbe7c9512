"""Which characters SQS takes: those XML 1.0 can carry. Pure, and on the hot path."""

from __future__ import annotations

from typing import Final

# #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF
_CONTROLS: Final = bytes(set(range(0x20)) - {0x09, 0x0A, 0x0D})
_NONCHARACTERS: Final = (b"\xef\xbf\xbe", b"\xef\xbf\xbf")  # U+FFFE and U+FFFF


def encode_legal(body: str) -> bytes | None:
    """The text in UTF-8, None when it has a character that SQS refuses."""
    try:
        encoded = body.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return None
    # Control characters are single bytes in UTF-8 and part of no other, so a scan of bytes in C
    # finds them; a regular expression over the text takes ten times as long.
    if len(encoded.translate(None, _CONTROLS)) != len(encoded):
        return None
    if not body.isascii() and any(each in encoded for each in _NONCHARACTERS):
        return None
    return encoded


def has_illegal_characters(value: str) -> bool:
    """Whether SQS would refuse it."""
    return encode_legal(value) is None

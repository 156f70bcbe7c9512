"""The MD5s with which SDKs check that SQS got what they sent. Pure, and on the hot path.

Of a body: the MD5 of its UTF-8. Of attributes: names in order; for each the name, the type and
the value, each after its length in four bytes, and before the value one byte for how it travels
(1 as text, 2 as bytes).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from ..model import Attribute

_AS_TEXT: Final = b"\x01"
_AS_BYTES: Final = b"\x02"
_OVERHEAD: Final = 3 * 4 + 1
"""What the form hashed adds to an attribute's own bytes: three lengths and the transport."""


def body_digest(body: bytes) -> str:
    """MD5OfMessageBody and MD5OfBody, of a body in UTF-8."""
    return hashlib.md5(body, usedforsecurity=False).hexdigest()


def attributes_digest(attributes: Mapping[str, Attribute]) -> str:
    """MD5OfMessageAttributes and MD5OfMessageSystemAttributes."""
    return digest_and_weight(attributes)[0]


def digest_and_weight(attributes: Mapping[str, Attribute]) -> tuple[str, int]:
    """The digest, and how many bytes the attributes add to a message: names, types and values."""
    parts: list[bytes] = []
    for name in sorted(attributes):
        data_type, value = attributes[name].data_type, attributes[name].value
        _append(parts, name.encode())
        _append(parts, data_type.encode())
        if isinstance(value, str):
            parts.append(_AS_TEXT)
            _append(parts, value.encode())
        else:
            parts.append(_AS_BYTES)
            _append(parts, value)
    form = b"".join(parts)
    digest = hashlib.md5(form, usedforsecurity=False).hexdigest()
    return digest, len(form) - _OVERHEAD * len(attributes)


def _append(parts: list[bytes], piece: bytes) -> None:
    parts.append(len(piece).to_bytes(4, "big"))
    parts.append(piece)

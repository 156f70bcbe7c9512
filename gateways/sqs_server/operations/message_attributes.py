"""Message attributes: which ones SQS takes, and which of them a receiver asked for. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from ..errors import SqsError, invalid_parameter_value, unsupported_operation
from ..model import Attribute
from .parameters import Parameters

MAX_ATTRIBUTES: Final = 10
_MAX_LENGTH: Final = 256
_BASE_TYPES: Final = frozenset({"String", "Number", "Binary"})
_LISTS: Final = frozenset({"StringListValues", "BinaryListValues"})

# AWS takes letters of every script here, whatever its documentation says of A-Z.
_NAME: Final = re.compile(r"[\w\-.]+")
_RESERVED: Final = ("aws.", "amazon.")
# 38 digits of precision, within ±1E-128 and ±1E126.
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")
_MAX_DIGITS: Final = 38

TRACE_HEADER: Final = "AWSTraceHeader"


def read_attributes(raw: Mapping[str, Parameters]) -> dict[str, Attribute]:
    """What a sender gave as MessageAttributes, checked; SqsError says what is wrong with it."""
    if len(raw) > MAX_ATTRIBUTES:
        raise _refusal(
            f"Number of message attributes [{len(raw)}] exceeds the allowed maximum "
            f"[{MAX_ATTRIBUTES}]."
        )
    return {name: _read(name, value) for name, value in raw.items()}


def read_trace_header(raw: Mapping[str, Parameters]) -> str:
    """The value of the one system attribute that a sender may set."""
    for name in raw:
        if name != TRACE_HEADER:
            raise _refusal(
                f"Message system attribute name '{name}' is invalid. "
                f"The only supported message system attribute is '{TRACE_HEADER}'."
            )
    attribute = _read(TRACE_HEADER, raw[TRACE_HEADER], kind="system")
    if attribute.data_type != "String" or not isinstance(attribute.value, str):
        raise _refusal(
            f"The type of message (system) attribute '{TRACE_HEADER}' is invalid. "
            "You must use the type 'String'."
        )
    return attribute.value


Selector = Callable[[Mapping[str, Attribute]], Mapping[str, Attribute]]


def selector(names: Sequence[str]) -> Selector | None:
    """Picks what MessageAttributeNames asks for; None when it asks for nothing."""
    if not names:
        return None
    if not {"All", "*", ".*"}.isdisjoint(names):
        return _everything
    exact = frozenset(names)
    prefixes = tuple(name[:-2] for name in names if name.endswith(".*"))
    return lambda attributes: {
        name: attribute
        for name, attribute in attributes.items()
        if name in exact or name.startswith(prefixes)
    }


def render_attribute(attribute: Attribute) -> dict[str, Any]:
    """As the API shows it."""
    member = "StringValue" if isinstance(attribute.value, str) else "BinaryValue"
    return {member: attribute.value, "DataType": attribute.data_type}


def _everything(attributes: Mapping[str, Attribute]) -> Mapping[str, Attribute]:
    return attributes


def list_values_unsupported(operation: str) -> SqsError:
    """The API has lists of values in its shapes, and no operation that takes them."""
    return unsupported_operation(
        f"Message attribute list values in {operation} operation are not supported."
    )


def _read(name: str, raw: Parameters, *, kind: str = "user") -> Attribute:
    _check_name(name, kind)
    data_type: str = raw.get("DataType") or ""
    base = data_type.partition(".")[0]
    if len(raw) != 2 or base not in _BASE_TYPES:  # nearly always a type and a value
        _check_members(name, raw, kind)
        if base not in _BASE_TYPES:
            raise _refusal(
                f"The type of message ({kind}) attribute '{name}' is invalid. You must use only "
                "the following supported type prefixes: Binary, Number, String."
            )
    if len(data_type) > _MAX_LENGTH:
        raise _refusal(f"Message ({kind}) attribute type must be shorter than {_MAX_LENGTH} bytes.")
    return Attribute(data_type, _read_value(name, raw, base, kind))


def _check_members(name: str, raw: Parameters, kind: str) -> None:
    """SqsError when an attribute has other members than a type and one value."""
    if not _LISTS.isdisjoint(raw):
        raise list_values_unsupported("SendMessage")
    if not raw.get("DataType"):
        lacking = "type" if raw.get("StringValue") or raw.get("BinaryValue") else "value"
        raise _refusal(
            f"The message ({kind}) attribute '{name}' must contain a non-empty message attribute "
            f"{lacking}."
        )
    if raw.get("StringValue") and raw.get("BinaryValue"):
        raise _refusal(f"Message ({kind}) attribute '{name}' must have a single value.")


def _read_value(name: str, raw: Parameters, base: str, kind: str) -> str | bytes:
    value: str | bytes | None = raw.get("BinaryValue" if base == "Binary" else "StringValue")
    if not value:
        _check_members(name, raw, kind)
        if raw.get("StringValue") or raw.get("BinaryValue"):
            field = "Binary" if base == "Binary" else "String"
            raise _refusal(
                f"Message ({kind}) attribute '{name}' with type '{raw['DataType']}' must use "
                f"field '{field}'."
            )
        raise _refusal(
            f"Message ({kind}) attribute '{name}' must contain a non-empty value of type '{base}'."
        )
    if isinstance(value, bytes):
        return value
    if has_illegal_characters(value):
        raise _refusal(
            f"Invalid binary character was found in message ({kind}) attribute '{name}'."
        )
    if base == "Number" and not _is_number(value):
        raise _refusal(f"Can't cast the value of message ({kind}) attribute '{name}' to a number.")
    return value


@lru_cache(maxsize=1_024)  # senders use the same few names again and again
def _check_name(name: str, kind: str) -> None:
    if not name:
        raise _refusal(f"The request must contain non-empty message ({kind}) attribute names.")
    if len(name) > _MAX_LENGTH:
        raise _refusal(f"Message ({kind}) attribute name must be shorter than {_MAX_LENGTH} bytes.")
    if name.lower().startswith(_RESERVED):
        raise _refusal(
            "You can't use message attribute names beginning with 'AWS.' or 'Amazon'. "
            "These strings are reserved for internal use."
        )
    if _NAME.fullmatch(name) is None:
        raise _refusal(
            f"Message ({kind}) attribute name '{name}' is invalid. It can contain alphanumeric "
            "characters, hyphens, underscores and periods."
        )
    _check_periods(name, kind)


def _check_periods(name: str, kind: str) -> None:
    if name.startswith("."):
        raise _refusal(f"Message ({kind}) attribute name must not begin with character '.'.")
    if name.endswith("."):
        raise _refusal(f"Message ({kind}) attribute name must not end with character '.'.")
    if ".." in name:
        raise _refusal(f"Message ({kind}) attribute name must not have successive '.' characters.")


def _is_number(value: str) -> bool:
    if _NUMBER.fullmatch(value) is None or not value.isascii():
        return False
    digits = value.lower().partition("e")[0].lstrip("+-").replace(".", "").strip("0")
    return len(digits) <= _MAX_DIGITS


def _refusal(message: str) -> SqsError:
    return invalid_parameter_value(message)


# Which characters SQS takes: those XML 1.0 can carry. Pure, and on the hot path.

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


# The MD5s with which SDKs check that SQS got what they sent. Pure, and on the hot path.
#
# Of a body: the MD5 of its UTF-8. Of attributes: names in order; for each the name, the type and
# the value, each after its length in four bytes, and before the value one byte for how it travels
# (1 as text, 2 as bytes).

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

"""Redaction: what of a value may be printed.

A message's body may hold anything, and so may an object made from it: objects are named by their
type, bytes by their number. What is called like a secret is not printed, at whatever depth; in
running text, credentials are cut out where their shape or their name gives them away.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping, MutableMapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache, partial
from itertools import islice
from numbers import Number
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any
from uuid import UUID

from ..errors import text_of

REDACTED = "[redacted]"
_MAX_DEPTH = 6
_MAX_ITEMS = 100

# Looked for anywhere in a name: `db_password`, `X-Api-Key`, `proxyAuthorization`.
_HUSHED = r"passw(?:or)?d|passwd|passphrase|pwd|secret"
_TO_THE_END = r"authori[sz]ation|cookie"
_NAMES = (
    rf"{_HUSHED}|token(?![_-]?id)|credential|connection[_-]?string|key[_-]?material"
    r"|(?:api|access|account|private|signing|encryption|master|shared|data)[_-]?key(?![_-]?id)"
)
_SECRET_NAME = re.compile(
    rf"{_NAMES}|{_TO_THE_END}|body|payload|headers|^(?:auth|dsn|pin|sig|signature)$", re.IGNORECASE
)
_SECRET_NUMBER = re.compile(rf"{_HUSHED}|^pin$", re.IGNORECASE)

_QUOTED = r"""\\*b?"[^"\n]*"?|\\*b?'[^'\n]*'?"""
_EQUALS = r"""[\w-]{0,40}\\*["']?\s?[=:>]\s?"""
# No part of it can be matched in two ways, and what can begin inside of itself is bounded, so that
# its time grows with the text and no faster: texts come from untrusted senders, too.
_SECRET_TEXT = re.compile(
    rf"""
    (?P<url>://)[^\s/?\#"'<>]*@                                      # scheme://user:password@
    | (?P<name>(?:{_NAMES}){_EQUALS})(?:{_QUOTED}|[^\s,;&"')\]}}]+)   # password=…, "api_key": "…"
    | (?P<header>(?:{_TO_THE_END}){_EQUALS})(?:{_QUOTED}|[^\n]+)
    | (?P<scheme>\b(?:Bearer|Basic)\s)[\w+/=.~-]{{8,}}
    | \b(?:AKIA|ASIA)[0-9A-Z]{{16}}\b                                # AWS
    | (?:(?<![\w-])eyJ[\w-]{{8,}}+|\beyJ[\w-]{{8,512}}+)\.[\w-]{{8,}}+\.[\w-]*  # a JSON web token
    """,
    re.IGNORECASE | re.VERBOSE,
)
_PUNCTUATION = re.compile(r"[=:>.\sA]")
"""What that pattern finds has one of these in it; names and ids mostly have none."""
_SIGNS = (
    *("pass", "pwd", "secret", "token", "credential", "connection", "key", "authori", "cookie"),
    *("bearer", "basic", "akia", "asia", "eyj"),
)
"""What it finds has one of these words in it, or is a URL with an @. To look for words is far
cheaper than to look for the pattern."""
_KEY_OF_32_BYTES = re.compile(r"(?<![\w+/=-])[\w+/-]{43}=(?![\w=])")
_PEM_BEGIN = "-----BEGIN "
_PEM = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-----END[A-Z ]*-----)?")

_NUMBERS = (int, float, type(None))
_SAFE = (
    date,
    time,
    timedelta,
    Decimal,
    Enum,
    UUID,
    ipaddress.IPv4Address,
    ipaddress.IPv6Address,
)
_NAMED = (type, FunctionType, BuiltinFunctionType, MethodType)
# How attrs, dataclasses, msgspec, pydantic and named tuples mark a class that holds data.
_DATA_MARKS = (
    "__attrs_attrs__",
    "__dataclass_fields__",
    "__struct_fields__",
    "model_fields",
    "_fields",
)


def scrub(text: str) -> str:
    """The text without the credentials that can be told by their shape or by their name."""
    if _PEM_BEGIN in text:
        text = _PEM.sub(REDACTED, text)
    if "\n" in text:
        return "".join(map(_scrub_line, text.splitlines(keepends=True)))
    return _scrub_line(text)


def _scrub_line(line: str) -> str:
    if _PUNCTUATION.search(line) is None:
        return line
    low = line.lower()
    if ("://" in line and "@" in line) or any(sign in low for sign in _SIGNS):
        line = _SECRET_TEXT.sub(_hide, line)
    if "=" in line and len(line) > 43:
        line = _KEY_OF_32_BYTES.sub(REDACTED, line)
    return line


def _hide(found: re.Match[str]) -> str:
    if found["url"]:
        return f"://{REDACTED}@"
    return (found["name"] or found["header"] or found["scheme"] or "") + REDACTED


@lru_cache(maxsize=1024)
def _is_secret_name(name: str, *, is_number: bool) -> bool:
    # A number is a count or a size: of tokens, of a body. A password may be one all the same.
    return (_SECRET_NUMBER if is_number else _SECRET_NAME).search(name) is not None


def shown(value: object, depth: int = 0) -> Any:
    """What is printed of a value: plain data, without secrets and foreign objects."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, _NUMBERS):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{memoryview(value).nbytes} bytes>"
    if isinstance(value, BaseException):
        return shown_error(value)
    if depth >= _MAX_DEPTH:
        return _type_of(value)
    if isinstance(value, Mapping):
        return shown_fields(value, depth + 1)
    if isinstance(value, list | set | frozenset) or type(value) is tuple:
        return _shown_items(value, depth + 1)
    return _shown_object(value)


def shown_fields(fields: Mapping[Any, object], depth: int = 0) -> dict[str, Any]:
    """What is printed of named values."""
    return {
        name if isinstance(name, str) else str(shown(name, _MAX_DEPTH)): shown_field(
            name, value, depth
        )
        for name, value in fields.items()
    }


def shown_field(name: object, value: object, depth: int = 0) -> Any:
    """What is printed of a value, given what it is called."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(name, str) and _is_secret_name(name, is_number=isinstance(value, int | float)):
        return REDACTED
    return shown(value, depth)


def shown_error(error: BaseException) -> str:
    """An error's type and its text, without the credentials the text may quote."""
    return scrub(f"{type(error).__name__}: {text_of(error)}")


def _shown_items(items: Collection[object], depth: int) -> list[Any]:
    listed = [shown(item, depth) for item in islice(items, _MAX_ITEMS)]
    more = len(items) - len(listed)
    return [*listed, f"… and {more} more"] if more else listed


def _shown_object(value: object) -> str:
    if isinstance(value, _SAFE):
        return str(value)
    if isinstance(value, PurePath):
        return scrub(str(value))
    if isinstance(value, _NAMED):
        return value.__qualname__
    if isinstance(value, ModuleType):
        return value.__name__
    if isinstance(value, partial) or any(hasattr(type(value), mark) for mark in _DATA_MARKS):
        return _type_of(value)
    return scrub(repr(value))


def _type_of(value: object) -> str:
    return f"<{type(value).__name__}>"


def redact_arguments(
    logger: object, method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """A structlog processor: the same for `log.info("%s", request)`.

    Goes before `structlog.stdlib.PositionalArgumentsFormatter`.
    """
    if "positional_args" in event:
        event["positional_args"] = shown_arguments(event["positional_args"])
    return event


def shown_arguments(arguments: Any) -> Any:
    """What may be formatted into a text: numbers as they are, for %d, and of all else what
    `shown` shows.
    """
    if isinstance(arguments, Mapping):
        return {name: _shown_argument(value) for name, value in arguments.items()}
    return tuple(map(_shown_argument, arguments))


def _shown_argument(value: object) -> object:
    # Text is looked at when the line is whole.
    return value if isinstance(value, str | Number) else shown(value)


_ABOUT_THE_LINE = frozenset({"level", "logger", "timestamp"})


def redact(
    logger: object, method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """A structlog processor: leaves nothing in a line that `shown` would not print.

    Goes behind whatever adds to the line, `structlog.processors.format_exc_info` included, and
    before the renderer.
    """
    for name, value in event.items():
        if name not in _ABOUT_THE_LINE:
            event[name] = shown_field(name, value)
    return event

"""Faults: what was wrong with a body, in words that do not repeat the body.

The words travel with the rejected message and reach logs, so a value is never among them:
whatever an error quotes from the body is replaced by `…`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import attrs
import msgspec

MAX_FAULTS = 3
"""How many of a body's faults are named; a list of thousands is no help."""
MAX_TEXT = 300
"""Characters of one error's text."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_PLACE = re.compile(r" - at (?:`(?P<key>key)` in )?`(?P<path>[^`]*)`$")
_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]*)`")
_QUOTING = re.compile(r"(Invalid (?:enum )?value)\b.*", re.DOTALL)
_REDACTED = "…"


@attrs.frozen
class Misfit(Exception):
    """Several faults at once, each with the path it was found at."""

    faults: tuple[tuple[str, BaseException], ...]


@attrs.frozen
class MappingFault(Exception):
    """A fault in our own words, which quote nothing."""

    words: str


def describe(error: BaseException, body: bytes) -> str:
    """Return what was wrong and where: `$.quantity: expected int, got str`."""
    named = list(dict.fromkeys(f"{path}: {text}" for path, text in _faults(error, "$", body)))
    more = len(named) - MAX_FAULTS
    return "; ".join(named[:MAX_FAULTS]) + (f"; and {more} more" if more > 0 else "")


def _faults(error: BaseException, path: str, body: bytes) -> Iterator[tuple[str, str]]:
    match error:
        case Misfit(faults=faults):
            for place, inner in faults:
                yield from _faults(inner, _join(path, place), body)
        case MappingFault(words=words):
            yield path, words
        case msgspec.ValidationError():
            yield from _of_msgspec(error, path, body)
        case msgspec.DecodeError():
            yield path, _lower(str(error))
        case UnicodeDecodeError():
            yield path, f"not {error.encoding} at byte {error.start}"
        case RecursionError():
            yield path, "nested too deeply"
        case KeyError(args=(str() as name,)) if path.endswith(f".{name}"):
            yield path, "required field is missing"
        case _ if _is_from_pydantic(error):
            yield from _of_pydantic(error, path, body)
        case _:
            yield path, f"{type(error).__name__}: {_first_words(error, body)}"


def _of_msgspec(
    error: msgspec.ValidationError, path: str, body: bytes
) -> Iterator[tuple[str, str]]:
    text = str(error)
    place = _PLACE.search(text)
    if place is not None:
        text = text[: place.start()]
        path = _join(path, place["path"]) + (" (key)" if place["key"] else "")
    if error.__cause__ is not None:
        yield from _faults(error.__cause__, path, body)
    elif missing := _MISSING.fullmatch(text):
        yield f"{path}.{missing['name']}", "required field is missing"
    else:
        # The only words of msgspec's that quote a value: of an enumeration, or a tag.
        yield path, _lower(_QUOTING.sub(r"\1", text).replace("`", ""))


def _is_from_pydantic(error: BaseException) -> bool:
    return type(error).__module__.startswith("pydantic_core") and hasattr(error, "errors")


def _of_pydantic(error: Any, path: str, body: bytes) -> Iterator[tuple[str, str]]:
    for fault in error.errors(include_url=False, include_input=False, include_context=False):
        place = "".join(f"[{at}]" if isinstance(at, int) else f".{at}" for at in fault["loc"])
        yield path + place, _lower(redact(fault["msg"], body))


def _first_words(error: BaseException, body: bytes) -> str:
    # attrs puts the message first, then the attribute and the value.
    words = error.args[0] if error.args and isinstance(error.args[0], str) else ""
    return redact(words, body)


def _join(path: str, below: str) -> str:
    return path + below.removeprefix("$")


def _lower(text: str) -> str:
    return text if text[:4].isupper() else text[:1].lower() + text[1:]


def redact(text: str, body: bytes) -> str:
    """Return `text` with every value of `body` taken out of it, cut to a bearable length.

    Where the body's values cannot be told, nothing of the text is left.
    """
    try:
        values = {form for value in _scalars(_plain(body)) for form in _forms(value)}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _REDACTED
    for value in sorted(values, key=len, reverse=True):
        if value in text:
            text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", _REDACTED, text)
            text = text.replace(value, _REDACTED) if len(value) >= 4 else text
    return text[:MAX_TEXT]


def _plain(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body.removeprefix(BYTE_ORDER_MARK))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return msgspec.msgpack.decode(body)


def _scalars(value: Any) -> Iterator[Any]:
    waiting = [value]
    while waiting:
        match waiting.pop():
            case dict() as mapping:
                waiting.extend(mapping.values())
            case list() | tuple() as items:
                waiting.extend(items)
            case None | bool():
                pass
            case scalar:
                yield scalar


def _forms(value: Any) -> Iterator[str]:
    for form in (str(value), repr(value)[1:-1] if isinstance(value, str | bytes) else ""):
        if form:
            yield form

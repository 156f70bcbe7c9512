"""Fidelity: whether msgspec treats a class as the class would treat itself.

msgspec sets fields directly instead of calling `__init__`. It runs attrs validators and
`__attrs_post_init__`, but neither converters nor a hand-written `__init__`; it leaves attrs
fields with a leading underscore out when writing, and takes `init=False` fields from the wire.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator
from typing import Any

import attrs
import msgspec


def is_faithful(kind: Any) -> bool:
    """Return whether msgspec alone may read and write `kind` and all it is made of."""
    return all(_keeps_its_word(part) for part in parts_of(kind)) and _is_supported(kind)


def parts_of(kind: Any) -> Iterator[Any]:
    """Yield `kind` and every type its fields and type arguments mention, each once.

    Raises NameError for an annotation that cannot be resolved.
    """
    # Keyed by identity, because the metadata of an Annotated type may not be hashable.
    seen: dict[int, Any] = {}
    waiting = [kind]
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen[id(part)] = part
        yield part
        waiting.extend(_mentioned_by(part))


def has_fields(kind: Any) -> bool:
    """Return whether `kind` is a class whose annotations are its data."""
    return isinstance(kind, type) and (
        attrs.has(kind)
        or dataclasses.is_dataclass(kind)
        or issubclass(kind, msgspec.Struct)
        or typing.is_typeddict(kind)
        or hasattr(kind, "_fields")
    )


def _mentioned_by(part: Any) -> Iterator[Any]:
    origin = typing.get_origin(part)
    if origin is typing.Annotated:
        yield part.__origin__
    elif origin in (typing.Union, types.UnionType):
        yield from typing.get_args(part)
    elif origin is not None and origin is not typing.Literal:
        yield origin
        yield from typing.get_args(part)
    elif has_fields(part):
        yield from typing.get_type_hints(part).values()


def _keeps_its_word(kind: Any) -> bool:
    if not isinstance(kind, type):
        return True
    if attrs.has(kind):
        return "__attrs_init__" not in vars(kind) and all(
            field.init
            and field.converter is None
            and not field.name.startswith("_")
            and not _reads_self(field.default)
            for field in attrs.fields(kind)
        )
    if dataclasses.is_dataclass(kind):
        return _is_generated(kind.__init__) and all(
            field.init for field in dataclasses.fields(kind)
        )
    return True


def _reads_self(default: Any) -> bool:
    return isinstance(default, attrs.Factory) and default.takes_self  # type: ignore[arg-type]


def _is_generated(function: Any) -> bool:
    # A wrong answer here costs speed only: the careful way is right for every class.
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename == "<string>"


def _is_supported(kind: Any) -> bool:
    try:
        msgspec.json.Decoder(kind)
    except (TypeError, NotImplementedError):
        # Such as a union of two attrs classes, which cattrs can tell apart.
        return False
    return True

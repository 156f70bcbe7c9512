"""Converter: which library reads and writes a type (ADR converter).

pydantic models go to pydantic, what msgspec treats faithfully to msgspec, the rest to cattrs.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import attrs
import msgspec

from .faults import BYTE_ORDER_MARK

Read = Callable[[bytes], Any]
Write = Callable[[Any], bytes]


class Format(Protocol):
    """One of msgspec's formats: how bytes are read as a type, and how values are written."""

    mark: bytes
    """What may stand in front of a body and means nothing; empty for none."""

    def reader(self, kind: Any) -> Read:
        """Return a function from a body to `kind`."""

    def pydantic_reader(self, model: Any) -> Read:
        """Return a function from a body to a pydantic model."""

    @property
    def write(self) -> Write:
        """Write anything msgspec or `hooks` knows."""


class JsonFormat:
    """JSON, which pydantic reads by itself."""

    mark = BYTE_ORDER_MARK

    def __init__(self) -> None:
        self.write: Write = msgspec.json.Encoder(enc_hook=write_foreign).encode

    def reader(self, kind: Any) -> Read:
        return msgspec.json.Decoder(kind, dec_hook=read_foreign).decode

    def pydantic_reader(self, model: Any) -> Read:
        read: Read = model.__pydantic_validator__.validate_json
        return read


class MsgpackFormat:
    """MessagePack, of which pydantic sees the plain values."""

    mark = b""

    def __init__(self) -> None:
        self.write: Write = msgspec.msgpack.Encoder(enc_hook=write_foreign).encode

    def reader(self, kind: Any) -> Read:
        return msgspec.msgpack.Decoder(kind, dec_hook=read_foreign).decode

    def pydantic_reader(self, model: Any) -> Read:
        plain = self.reader(Any)
        return lambda body: model.__pydantic_validator__.validate_python(plain(body))


def reader_for(kind: Any, form: Format) -> Read:
    """Return the function that reads `kind`. Raises TypeError or NameError if none can."""
    if is_pydantic(kind):
        return form.pydantic_reader(kind)
    if is_faithful(kind):
        return form.reader(kind)
    # Loaded on demand: most programs never need cattrs, and it takes a while to import.
    from .cattrs_reader import reader_of

    plain, build = form.reader(Any), reader_of(kind)
    return lambda body: build(plain(body))


def writer_for(kind: type, form: Format) -> Write:
    """Return the function that writes objects of exactly this class."""
    if not has_fields(kind) or is_pydantic(kind) or is_faithful(kind):
        return form.write
    from .cattrs_reader import writer_of

    plain, write = writer_of(kind), form.write
    return lambda request: write(plain(request))


def unreadable_parts(kind: Any) -> tuple[str, ...]:
    """Return the classes in `kind` that nothing here can read, by name."""
    return tuple(
        part.__qualname__
        for part in parts_of(kind)
        if isinstance(part, type)
        and part is not object
        and not has_fields(part)
        and not is_pydantic(part)
        and isinstance(msgspec.inspect.type_info(part), msgspec.inspect.CustomType)
    )


# Hooks: pydantic models, recognised without importing pydantic, as requests or inside one.


def is_pydantic(kind: Any) -> bool:
    """Return whether `kind` is a pydantic 2 model or dataclass."""
    return isinstance(kind, type) and hasattr(kind, "__pydantic_validator__")


def read_foreign(kind: Any, value: Any) -> Any:
    """Build an object of a type msgspec does not know; TypeError when no library knows it."""
    if is_pydantic(kind):
        return kind.__pydantic_validator__.validate_python(value)
    if kind is object:
        return value
    name = getattr(kind, "__qualname__", kind)
    raise TypeError(f"{name} is not a type that can be read from a message")


def write_foreign(value: Any) -> Any:
    """Return what to write for an object msgspec does not know."""
    kind = type(value)
    if is_pydantic(kind):
        return kind.__pydantic_serializer__.to_python(value, mode="json", by_alias=True)
    raise TypeError(f"{kind.__qualname__} is not a type that can be written to a message")


# Fidelity: whether msgspec treats a class as the class would treat itself.
#
# msgspec sets fields directly instead of calling `__init__`. It runs attrs validators and
# `__attrs_post_init__`, but neither converters nor a hand-written `__init__`; it leaves attrs
# fields with a leading underscore out when writing, and takes `init=False` fields from the wire.


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

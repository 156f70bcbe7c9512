"""Converter: which library reads and writes a type (ADR converter).

pydantic models go to pydantic, what msgspec treats faithfully to msgspec, the rest to cattrs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from .faults import BYTE_ORDER_MARK
from .fidelity import has_fields, is_faithful, parts_of
from .hooks import is_pydantic, read_foreign, write_foreign

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
    from .careful import reader_of

    plain, build = form.reader(Any), reader_of(kind)
    return lambda body: build(plain(body))


def writer_for(kind: type, form: Format) -> Write:
    """Return the function that writes objects of exactly this class."""
    if not has_fields(kind) or is_pydantic(kind) or is_faithful(kind):
        return form.write
    from .careful import writer_of

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

"""cattrs reader: cattrs builds the classes that msgspec would not build faithfully.

It calls their `__init__`, so converters and hand-written constructors run; everything below
them that msgspec does treat faithfully is still msgspec's, with its strict types.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from datetime import date, datetime
from enum import Enum
from functools import lru_cache
from typing import Any

import attrs
import msgspec
from cattrs import (
    BaseValidationError,
    ClassValidationError,
    Converter,
    IterableValidationError,
    StructureHandlerNotFoundError,
)
from cattrs.gen import make_dict_structure_fn

from .converter import has_fields, is_faithful, read_foreign
from .faults import MappingFault, Misfit

Convert = Callable[[Any], Any]


# cattrs looks these up by class, before it asks a predicate.
_DIRECT = (bool, int, float, str, bytes, datetime, date, Enum)


@lru_cache(maxsize=1)
def _converter() -> Converter:
    converter = Converter(detailed_validation=True)
    converter.register_structure_hook_factory(_is_awkward, _read_object)
    converter.register_structure_hook_factory(is_faithful, _read_with_msgspec)
    converter.register_unstructure_hook_factory(_is_msgspecs_to_write, lambda _: _leave)
    for kind in _DIRECT:
        converter.register_structure_hook(kind, _convert)
    return converter


def _convert(value: Any, kind: Any) -> Any:
    return msgspec.convert(value, kind, dec_hook=read_foreign)


def _read_with_msgspec(_: Any) -> Callable[[Any, Any], Any]:
    return _convert


def _is_msgspecs_to_write(kind: Any) -> bool:
    # Containers are walked, since at run time nothing tells what is in them.
    return has_fields(kind) and is_faithful(kind)


def _leave(value: Any) -> Any:
    return value


def _is_awkward(kind: Any) -> bool:
    is_class = isinstance(kind, type) and (attrs.has(kind) or dataclasses.is_dataclass(kind))
    return is_class and not is_faithful(kind)


def _read_object(kind: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    build = make_dict_structure_fn(kind, converter)

    def read(value: Any, _: Any) -> Any:
        if not isinstance(value, dict):
            raise MappingFault(f"expected object, got {type(value).__name__}")
        return build(value, kind)

    return read


def reader_of(kind: Any) -> Convert:
    """Return a function from plain values to `kind`. Raises TypeError where there is none."""
    try:
        hook = _converter().get_structure_hook(kind)
    except StructureHandlerNotFoundError as error:
        raise TypeError(f"cattrs cannot build {error.type_!r}") from error

    def read(value: Any) -> Any:
        try:
            return hook(value, kind)
        except BaseValidationError as error:
            raise Misfit(tuple(_leaves(error, "$"))) from error

    return read


def writer_of(kind: Any) -> Convert:
    """Return a function from an object of `kind` to values that msgspec can write."""
    hook: Convert = _converter().get_unstructure_hook(kind)
    return hook


def _leaves(error: BaseException, path: str) -> Iterator[tuple[str, BaseException]]:
    if isinstance(error, ClassValidationError):
        noted, bare = error.group_exceptions()
        for inner, note in noted:
            yield from _leaves(inner, f"{path}.{note.name}")
    elif isinstance(error, IterableValidationError):
        noted_items, bare = error.group_exceptions()
        for inner, item in noted_items:
            # The keys of a mapping are data, its indexes are not.
            place = item.index if isinstance(item.index, int) else "..."
            yield from _leaves(inner, f"{path}[{place}]")
    else:
        yield path, error
        return
    for inner in bare:
        yield from _leaves(inner, path)

"""Hooks: pydantic models, recognised without importing pydantic, as requests or inside one."""

from __future__ import annotations

from typing import Any


def is_pydantic(kind: Any) -> bool:
    """Return whether `kind` is a pydantic 2 model or dataclass."""
    return isinstance(kind, type) and hasattr(kind, "__pydantic_validator__")


def read_foreign(kind: Any, value: Any) -> Any:
    """Build an object of a type msgspec does not know; TypeError when nobody knows it."""
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

"""Type names: how a request's class is spelt in a message's type header."""

from __future__ import annotations

import builtins
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import ConfigurationError


def type_name_of(request_type: Any) -> str:
    """Return the name a type has on the wire.

    It is the class's own `__message_type__` if it has one, else its name, with the classes it
    is nested in and without its module, so that moving a module breaks no queue. A subclass
    does not inherit `__message_type__`: it is another kind of message. Built-in types (`dict`,
    `bytes`, `Any`) have no name, "", because they say nothing about what is in a message.
    """
    kind = typing.get_origin(request_type) or request_type
    module = getattr(kind, "__module__", "")
    if module in (builtins.__name__, typing.__name__) or not hasattr(kind, "__qualname__"):
        return ""
    given = vars(kind).get("__message_type__")
    return given if isinstance(given, str) else kind.__qualname__.rpartition("<locals>.")[2]


def known_types(types: Iterable[type], names: Mapping[str, type]) -> dict[str, type]:
    """Return every readable name with its type; one name for two types is a mistake."""
    known = dict(names)
    for request_type in types:
        name = type_name_of(request_type)
        if name and known.setdefault(name, request_type) is not request_type:
            raise ConfigurationError(
                "Mapper.types",
                request_type,
                f"{name!r} already names {known[name]!r}; give one of them a __message_type__",
            )
    return known


def written_names(names: Mapping[str, type]) -> dict[type, str]:
    """Return the name to write for each type that `names` gives one.

    A class's own `__message_type__` stands above the table, whose first name for a type
    stands above later ones: those are aliases that are only read.
    """
    written: dict[type, str] = {}
    for name, request_type in names.items():
        own = vars(request_type).get("__message_type__")
        written.setdefault(request_type, own if isinstance(own, str) else name)
    return written

"""Names: how a request's class is spelt in a message's type header."""

from __future__ import annotations

import builtins
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from ..errors import ConfigurationError, MappingError

_MAX_SHOWN = 10
_NAMELESS = (builtins.__name__, typing.__name__, types.__name__)


def type_name_of(request_type: Any) -> str:
    """Return the name a type has on the wire.

    It is the class's own `__message_type__` if it has one, else its name, with the classes it
    is nested in and without its module, so that moving a module breaks no queue. A subclass
    does not inherit `__message_type__`: it is another kind of message. Built-in types (`dict`,
    `bytes`, `Any`) have no name, "", because they say nothing about what is in a message.
    """
    kind = typing.get_origin(request_type) or request_type
    module = getattr(kind, "__module__", "")
    if module in _NAMELESS or not hasattr(kind, "__qualname__"):
        return ""
    given = vars(kind).get("__message_type__")
    return given if isinstance(given, str) else kind.__qualname__.rpartition("<locals>.")[2]


class Names:
    """Which type a name on the wire means, and which name a type is written under.

    `names` adds to what the classes say of themselves. The first name it gives a class is
    written, unless the class has its own `__message_type__`; the others are only read.
    """

    def __init__(self, request_types: Iterable[type], names: Mapping[str, type]) -> None:
        self._meaning = dict(names)
        self._written: dict[type, str] = {}
        # Asked once for each message, and a dictionary is ten times as fast as reflection.
        self._own: dict[type, str] = {}
        for name, request_type in names.items():
            own = vars(request_type).get("__message_type__")
            self._written.setdefault(request_type, own if isinstance(own, str) else name)
        for request_type in request_types:
            self._add(request_type)

    def _add(self, request_type: type) -> None:
        name = type_name_of(request_type)
        if name and self._meaning.setdefault(name, request_type) is not request_type:
            raise ConfigurationError(
                "Mapper.types",
                request_type,
                f"{name!r} already means {self._meaning[name]!r}; "
                f"give one of them a __message_type__",
            )

    def written(self, kind: type) -> str:
        """Return the name to write for a class."""
        name = self._written.get(kind)
        if name is None:
            name = self._written[kind] = type_name_of(kind)
        return name

    def meaning(self, name: str, request: type | None) -> type:
        """Return the type a message of this name carries, on a subscription to `request`.

        Raises MappingError for a name that nothing has.
        """
        if request is not None:
            own = self._own.get(request)
            if own is None:
                own = self._own[request] = type_name_of(request)
            if not name or not own:
                return request
            if name == own:
                return self._meaning.get(name, request)
        found = self._meaning.get(name)
        if found is None:
            self._refuse(name, request)
        return found

    def _refuse(self, name: str, request: type | None) -> NoReturn:
        if not name:
            raise MappingError(name, "it has no type, and its subscription no request type")
        known = list(dict.fromkeys([*([type_name_of(request)] if request else []), *self._meaning]))
        shown = ", ".join(known[:_MAX_SHOWN]) + (", …" if len(known) > _MAX_SHOWN else "")
        raise MappingError(
            name,
            f"unknown type, known: {shown or 'none'}; register a handler for it, or give a class "
            f"that name with __message_type__ or Mapper(names=…)",
        )

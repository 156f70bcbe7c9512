"""Registry: which handlers a request type has. One per app; there is no global one."""

from __future__ import annotations

import inspect
import itertools
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import attrs

from .errors import ConfigurationError, HandlerNotFound, TooManyHandlers
from .pipeline import Middleware
from .requests import Event


class HandlerObject(Protocol):
    """An object that handles requests, async or blocking."""

    def handle(self, request: Any, /) -> Any:
        """Carry out the request."""


Handling = type[Any] | Callable[[Any], Any] | HandlerObject
"""A class with a `handle(request)` method, an object with one, or a function."""


@attrs.frozen(kw_only=True, eq=False)
class Registration:
    """One handler of one request type, with the middleware it declared."""

    request_type: type
    handler: Any
    name: str
    middleware: tuple[Middleware, ...]


class Registry:
    """Request types and their handlers, in the order they were registered."""

    def __init__(self) -> None:
        self._registrations: dict[type, tuple[Registration, ...]] = {}
        self.version = 0
        """Grows with every registration: what was compiled from an older one is stale."""

    def register(
        self,
        request_type: type,
        handler: Handling,
        *,
        middleware: Sequence[Middleware] = (),
    ) -> Registration:
        """Add a handler. Its own `middleware` attribute runs inside the one given here."""
        if not isinstance(request_type, type):
            raise ConfigurationError("register.request_type", request_type, "give a class")
        has_handle = callable(getattr(handler, "handle", None))
        if not has_handle and (inspect.isclass(handler) or not callable(handler)):
            raise ConfigurationError(
                "register.handler", handler, "give a function, or a class with handle(request)"
            )
        known = self._registrations.get(request_type, ())
        registration = Registration(
            request_type=request_type,
            handler=handler,
            name=_name_beside(handler, {each.name for each in known}),
            middleware=(*middleware, *getattr(handler, "middleware", ())),
        )
        self._registrations[request_type] = (*known, registration)
        self.version += 1
        return registration

    def of(self, request_type: type) -> tuple[Registration, ...]:
        """The handlers of exactly this type, possibly none."""
        return self._registrations.get(request_type, ())

    def one(self, request_type: type) -> Registration:
        """The only handler of a type; an error that says what to do when it is not one."""
        found = self.of(request_type)
        if not found:
            raise HandlerNotFound(request_type.__qualname__)
        if len(found) > 1:
            raise TooManyHandlers(request_type.__qualname__, tuple(r.name for r in found))
        return found[0]

    def check(self, request_type: type) -> None:
        """Raise unless a message of this type could be dispatched."""
        if issubclass(request_type, Event):
            if not self.of(request_type):
                raise HandlerNotFound(request_type.__qualname__)
        else:
            self.one(request_type)

    @property
    def request_types(self) -> tuple[type, ...]:
        """Every type with a handler."""
        return tuple(self._registrations)


def _name_beside(handler: Any, taken: set[str]) -> str:
    # Two handlers of one type never share a name: a once-only inbox would take one for the other.
    named = handler if hasattr(handler, "__qualname__") else type(handler)
    name = f"{named.__module__}.{named.__qualname__}"
    copies = (f"{name}#{count}" for count in itertools.count(2))
    return name if name not in taken else next(copy for copy in copies if copy not in taken)


def request_type_of(handler: Handling) -> type:
    """Read a handler's request type off `Handler[T]` or the annotation of its first parameter."""
    if inspect.isclass(handler):
        for base in (
            types.get_original_bases(handler)
            if hasattr(types, "get_original_bases")
            else getattr(handler, "__orig_bases__", ())
        ):
            for argument in typing.get_args(base):
                if isinstance(argument, type):
                    return argument
    function: Any = getattr(handler, "handle", handler)
    try:
        hints = typing.get_type_hints(function)
    except NameError:
        hints = {}
    for parameter in inspect.signature(function).parameters:
        if parameter != "self" and isinstance(hints.get(parameter), type):
            return typing.cast(type, hints[parameter])
    raise ConfigurationError(
        "handler",
        handler,
        "its request type is not evident; subclass Handler[YourRequest], annotate the parameter, "
        "or use app.register(YourRequest, handler)",
    )

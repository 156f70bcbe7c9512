"""CommandProcessor: the one door to handlers, and to queues.

`send` runs the one handler of a request here and now, `publish` all of an event's, `post` sends
the request through a gateway to be handled elsewhere.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import types
import typing
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from typing import Any, Final, Protocol, dataclass_transform

import attrs

from .clock import SYSTEM_CLOCK, Clock
from .context import Context
from .errors import ConfigurationError, HandlerNotFound, TooManyHandlers
from .message import Delivery
from .pipeline import HandlerFactory, Invoke, Middleware, call_constructor, compose, invoker
from .posting import NO_OPTIONS, Poster, PostOptions
from .subscription import Subscription

_Pipelines = tuple[tuple[str, Invoke], ...]


ENDS_OF_THE_PROGRAM: Final = (SystemExit, KeyboardInterrupt)
"""What a handler raises to end not its message but the process."""


class CommandProcessor:
    """Runs requests through their pipelines. Sync and async handlers alike."""

    def __init__(
        self,
        registry: HandlerRegistry,
        *,
        threads: Executor | None = None,
        factory: HandlerFactory = call_constructor,
        middleware: Sequence[Middleware] = (),
        clock: Clock = SYSTEM_CLOCK,
        poster: Poster | None = None,
    ) -> None:
        self._registry = registry
        self._threads = threads
        self._factory = factory
        self._middleware = tuple(middleware)
        self._clock = clock
        self._poster = poster
        self._pipelines: dict[type, _Pipelines] = {}
        self._compiled_version = registry.version

    async def send(self, request: object) -> Any:
        """Run the request's one handler and return what it returns.

        Raises `HandlerNotFound` or `TooManyHandlers`, and whatever the handler raises.
        """
        [(name, invoke)] = self._exactly_one(type(request))
        return await invoke(request, self._context(name))

    async def publish(self, event: object) -> None:
        """Run every handler of the event, concurrently, to its end.

        Failures are raised together as an ExceptionGroup; an event without a handler is no error.
        """
        await self._run_all(event, self._compiled(type(event)), None, None)

    async def post(
        self, request: object, options: PostOptions = NO_OPTIONS, *, transaction: object = None
    ) -> str:
        """Send the request to its queue and return the message's id once it is accepted; with a
        `transaction`, `deposit` it.
        """
        if transaction is not None:
            return await self.deposit(request, options, transaction=transaction)
        return await self._outward("post").post(request, options)

    async def deposit(
        self, request: object, options: PostOptions = NO_OPTIONS, *, transaction: object
    ) -> str:
        """Write the request into the outbox, in this transaction of the user's own database, and
        return its message's id. It is sent once the transaction has committed: by a relay, or at
        once by `clear`.
        """
        [id_] = await self._outward("deposit").deposit([request], options, transaction)
        return id_

    async def clear(self, ids: Sequence[str]) -> None:
        """Send what was deposited under these ids now, and return when it was accepted. Ids of
        what has not committed, or was sent already, are passed over.
        """
        await self._outward("clear").clear(ids)

    def _outward(self, operation: str) -> Poster:
        if self._poster is None:
            remedy = f"{operation}() needs a gateway; use an App's processor"
            raise ConfigurationError("CommandProcessor.poster", None, remedy)
        return self._poster

    async def dispatch(
        self, request: object, delivery: Delivery, subscription: Subscription
    ) -> None:
        """Handle a request that arrived: events by all handlers, everything else by one."""
        pipelines = self._compiled(type(request))
        if len(pipelines) == 1:
            [(name, invoke)] = pipelines
            await invoke(request, self._context(name, delivery, subscription))
        elif pipelines and isinstance(request, Event):
            await self._run_all(request, pipelines, delivery, subscription)
        else:
            self._exactly_one(type(request))

    async def _run_all(
        self,
        event: object,
        pipelines: _Pipelines,
        delivery: Delivery | None,
        subscription: Subscription | None,
    ) -> None:
        results = await asyncio.gather(
            *(
                _contained(invoke(event, self._context(name, delivery, subscription)))
                for name, invoke in pipelines
            ),
            return_exceptions=True,
        )
        failures = [result for result in results if isinstance(result, BaseException)]
        if failures:
            for failure in failures:
                if isinstance(failure, ENDS_OF_THE_PROGRAM):
                    raise failure
            raise BaseExceptionGroup(
                f"{len(failures)} of {len(pipelines)} handlers of {type(event).__qualname__}",
                failures,
            )

    def _context(
        self,
        handler: str,
        delivery: Delivery | None = None,
        subscription: Subscription | None = None,
    ) -> Context:
        return Context(
            handler=handler,
            delivery=delivery,
            subscription=subscription,
            processor=self,
            clock=self._clock,
        )

    def _exactly_one(self, request_type: type) -> _Pipelines:
        pipelines = self._compiled(request_type)
        if not pipelines:
            raise HandlerNotFound(request_type.__qualname__)
        if len(pipelines) > 1:
            names = tuple(name for name, _ in pipelines)
            raise TooManyHandlers(request_type.__qualname__, names)
        return pipelines

    def _compiled(self, request_type: type) -> _Pipelines:
        if self._compiled_version != self._registry.version:
            self._pipelines.clear()
            self._compiled_version = self._registry.version
        known = self._pipelines.get(request_type)
        if known is None:
            known = tuple(
                (
                    each.name,
                    compose(
                        invoker(each.handler, factory=self._factory, threads=self._threads),
                        (*self._middleware, *each.middleware),
                    ),
                )
                for each in self._registry.of(request_type)
            )
            self._pipelines[request_type] = known
        return known


async def _contained(handling: Awaitable[Any]) -> Any:
    """Return what would break off the event loop if it ended a task of its own."""
    try:
        return await handling
    except ENDS_OF_THE_PROGRAM as error:
        return error


# Registry: which handlers a request type has. One per app; there is no global one.


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


class HandlerRegistry:
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


# Requests: what handlers receive. `Command` asks one handler to act, `Event` tells many.
#
# Subclassing is enough, the subclass becomes a frozen attrs class:
#
#     class PlaceOrder(Command):
#         order_id: str
#         quantity: int = 1
#
# pydantic and msgspec models, dataclasses and other attrs classes may be requests too; they need
# no base class of ours.


@dataclass_transform(frozen_default=True, field_specifiers=(attrs.field,))
class _Request:
    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # slots=False, because a slotted attrs class is a new class object, which
        # __init_subclass__ cannot hand back.
        attrs.frozen(slots=False)(cls)


class Command(_Request):
    """An instruction to do one thing; exactly one handler carries it out."""


class Event(_Request):
    """A fact that something happened; every handler that cares is told."""

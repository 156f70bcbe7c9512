"""`Handler[T]`: what applications subclass."""

from __future__ import annotations

import abc
import inspect
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Generic, TypeVar, cast

from pump.context import Context, current_context
from pump.errors import ConfigurationError, LeaseLost, PumpError, SessionLockLost
from pump.outcome import Signal, carries_signal
from pump.pipeline import Middleware

T = TypeVar("T")


class NoContext(PumpError):
    """`Handler.context` was read while no handler was running."""

    def __str__(self) -> str:
        return (
            "there is no context here: it exists while the pump handles a request, in the handler "
            "and in the tasks and threads it starts; read it in handle(), not in __init__"
        )


class Handler(abc.ABC, Generic[T]):
    """Handles requests of type T: subclass it and write `handle`, async or blocking.

    A new instance is made by the app's factory for every request, so `self` may hold the
    request's state. A blocking `handle` runs in the pump's thread pool; it cannot be cancelled,
    only left behind.
    """

    middleware: ClassVar[Sequence[Middleware]] = ()
    """What surrounds `handle`, the first outermost. Assigning it replaces the inherited one;
    `@use` adds to it."""

    @abc.abstractmethod
    def handle(self, request: T) -> Any:
        """Carry out the request; write it as `async def` or as a plain `def`.

        Returning means it is done. Raise `DeferMessage`, `RejectMessage` or `InvalidMessage` to
        say what should become of the message; any other error follows the subscription's
        failure strategy.
        """

    @property
    def context(self) -> Context:
        """The delivery, attempt, clock and processor of the current request.

        Raises `NoContext` outside of a handling.
        """
        context = current_context()
        if context is None:
            raise NoContext
        return context


# `@use(…)`: declares a handler's middleware.

H = TypeVar("H", bound=Callable[..., Any])


def use(*middleware: Middleware) -> Callable[[H], H]:
    """Surround a handler class or function with middleware, the first listed outermost.

        @use(Retry(3), Timeout(timedelta(seconds=5)))   # each of the 3 tries has 5 seconds
        class TakePayment(Handler[Pay]): ...

    What the handler has already, inherited or from a `@use` below, stays inside. The app's
    middleware is outside of all of it. A base class is never changed.
    """
    for step in middleware:
        _check(step)

    def declare(handler: H) -> H:
        declared = (*middleware, *getattr(handler, "middleware", ()))
        try:
            cast(Any, handler).middleware = declared
        except AttributeError:
            raise ConfigurationError(
                "use", handler, "it takes no attributes; decorate the function or the class"
            ) from None
        return handler

    return declare


def _check(step: object) -> None:
    if inspect.isclass(step):
        raise ConfigurationError(
            "use", step, f"give middleware, not classes: @use({step.__name__}(…))"
        )
    if not callable(step):
        raise ConfigurationError("use", step, "give callables (request, context, proceed)")
    try:
        inspect.signature(step).bind("request", "context", "proceed")
    except TypeError:
        raise ConfigurationError(
            "use", step, "a middleware takes (request, context, proceed); write @use(…) above"
        ) from None


# Failures: which errors a middleware may act on. Signals and lost leases are not among them.

FailureTypes = tuple[type[Exception], ...]
OneOrMore = type[Exception] | Iterable[type[Exception]]
_LOST = (LeaseLost, SessionLockLost)


def is_failure(error: Exception, context: Context) -> bool:
    """Whether the handler failed, and did not say by a signal what to do, or lose its lease.

    Law 8: a signal counts wherever it is: alone, in a group, or replaced on its way here by a
    middleware of the application.
    """
    if context.signal is not None or carries_signal(error):
        return False
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(_LOST) is None
    return not isinstance(error, _LOST)


def failure_types(field: str, given: object) -> FailureTypes:
    """Return `given`, one error class or several, as a tuple; refuse what may not be caught."""
    kinds = tuple(given) if isinstance(given, Iterable) else (given,)
    if not kinds:
        raise ConfigurationError(field, given, "name at least one error class")
    for kind in kinds:
        if not inspect.isclass(kind) or not issubclass(kind, Exception):
            raise ConfigurationError(
                field, given, "give subclasses of Exception; cancellation is never caught"
            )
        if issubclass(kind, Signal):
            raise ConfigurationError(field, given, "signals always get out; name errors only")
    return kinds


def positive(field: str, value: object) -> timedelta:
    """Return `value` if it is a timedelta above zero."""
    if not isinstance(value, timedelta) or value <= timedelta(0):
        raise ConfigurationError(field, value, "use a timedelta above zero")
    return value

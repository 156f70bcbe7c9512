"""`@use(…)`: declares a handler's middleware."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from pump.errors import ConfigurationError
from pump.pipeline import Middleware

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

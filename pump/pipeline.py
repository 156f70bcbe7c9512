"""Pipeline: a handler behind its middleware, composed once per registration.

A middleware is called with the request, the context and `proceed`, which runs the rest; it
may act before and after, call `proceed` again (retry), or not at all (once-only). Law 8: a
signal gets out whatever the middleware around it does: swallow it or raise another error. That
is seen to here, so no middleware, ours or a user's, can break it.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from typing import Any, Protocol

from .context import Context, enter_context, leave_context
from .signals import carries_signal

Proceed = Callable[[Any], Awaitable[Any]]
Invoke = Callable[[Any, Context], Awaitable[Any]]
HandlerFactory = Callable[[type], Any]
"""Makes a handler from its class, for each message; a dependency container goes here."""


class Middleware(Protocol):
    """Wraps the handling of a request."""

    async def __call__(self, request: Any, context: Context, proceed: Proceed) -> Any:
        """Handle `request`, usually by awaiting `proceed(request)`."""


def call_constructor(handler_type: type) -> Any:
    """The default factory: handlers that need nothing."""
    return handler_type()


def compose(handler: Invoke, middleware: Sequence[Middleware]) -> Invoke:
    """Return `handler` wrapped in `middleware`, the first one outermost."""
    if not middleware:
        return handler
    chain: Invoke = _noting_signals(handler)
    for step in reversed(middleware):
        chain = _wrap(step, chain)

    async def invoke(request: Any, context: Context) -> Any:
        try:
            result = await chain(request, context)
        except Exception as error:  # broad: whatever it is, it must not stand for a signal
            if context.signal is None or carries_signal(error):
                raise
            raise context.signal from None
        if context.signal is not None:
            raise context.signal
        return result

    return invoke


def _noting_signals(handler: Invoke) -> Invoke:
    async def invoke(request: Any, context: Context) -> Any:
        try:
            return await handler(request, context)
        except Exception as error:  # broad: a group may hold a signal
            _note(error, context)
            raise

    return invoke


def _wrap(step: Middleware, rest: Invoke) -> Invoke:
    async def invoke(request: Any, context: Context) -> Any:
        try:
            return await step(request, context, lambda changed: rest(changed, context))
        except Exception as error:  # broad: middleware raise signals of their own
            _note(error, context)
            raise

    return invoke


def _note(error: Exception, context: Context) -> None:
    if carries_signal(error):
        context.signal = error


def invoker(handler: Any, *, factory: HandlerFactory, threads: Executor | None) -> Invoke:
    """Return the innermost step for a handler class, object or function, sync or async.

    A class is built by `factory` for every request. Blocking handlers run in `threads` (None:
    the loop's own pool) with the caller's context variables; they cannot be cancelled, only
    left behind.
    """
    function: Any = getattr(handler, "handle", handler)
    build = factory if inspect.isclass(handler) else None
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
    ):
        return _async_step(handler, function, build)
    return _blocking_step(handler, function, build, threads)


def _async_step(handler: Any, function: Any, build: HandlerFactory | None) -> Invoke:
    async def invoke(request: Any, context: Context) -> Any:
        # Left again, so that a handler that sends a request finds its own context afterwards.
        token = enter_context(context)
        try:
            return await (function if build is None else build(handler).handle)(request)
        finally:
            leave_context(token)

    return invoke


def _blocking_step(
    handler: Any, function: Any, build: HandlerFactory | None, threads: Executor | None
) -> Invoke:
    async def invoke(request: Any, context: Context) -> Any:
        variables = contextvars.copy_context()
        variables.run(enter_context, context)
        target = function if build is None else variables.run(build, handler).handle
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(threads, variables.run, target, request)

    return invoke

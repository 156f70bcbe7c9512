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
import os
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from typing import Any, Protocol

from .context import Context, enter_context, leave_context
from .outcome import carries_signal

Proceed = Callable[[Any], Awaitable[Any]]
Invoke = Callable[[Any, Context], Awaitable[Any]]
HandlerFactory = Callable[[type], Any]
"""Makes a handler from its class, for each message; a dependency container goes here."""


_FROM_OUTSIDE = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)


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
        except BaseException as error:  # broad: whatever it is, it must not stand for a signal
            if context.signal is not None and _could_stand_for_a_signal(error):
                raise context.signal from None
            raise
        if context.signal is not None:
            raise context.signal
        return result

    return invoke


def _could_stand_for_a_signal(error: BaseException) -> bool:
    return not carries_signal(error) and not isinstance(error, _FROM_OUTSIDE)


def _noting_signals(handler: Invoke) -> Invoke:
    async def invoke(request: Any, context: Context) -> Any:
        try:
            return await handler(request, context)
        except (Exception, BaseExceptionGroup) as error:  # broad: a group may hold a signal
            _note(error, context)
            raise

    return invoke


def _wrap(step: Middleware, rest: Invoke) -> Invoke:
    async def invoke(request: Any, context: Context) -> Any:
        try:
            return await step(request, context, lambda changed: rest(changed, context))
        except (Exception, BaseExceptionGroup) as error:  # broad: middleware have signals too
            _note(error, context)
            raise

    return invoke


def _note(error: BaseException, context: Context) -> None:
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
        forks = _forks
        try:
            return await (function if build is None else build(handler).handle)(request)
        finally:
            if forks != _forks:
                os._exit(_CHILD)
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
        result = await loop.run_in_executor(threads, variables.run, _call, target, request)
        if result is None:
            return None
        return await _done(result, handler)

    return invoke


def _call(target: Callable[[Any], Any], request: Any) -> Any:
    forks = _forks
    try:
        return target(request)
    except (StopIteration, GeneratorExit) as error:
        # No future carries the first (before Python 3.12 it would never be done); the second
        # would close the coroutine that waits for it.
        raise RuntimeError(f"the handler raised {type(error).__name__}") from error
    finally:
        if forks != _forks:
            os._exit(_CHILD)


async def _done(result: Any, handler: Any) -> Any:
    """What a blocking handler returned; work that it returned instead of doing it is done now."""
    if inspect.isawaitable(result):
        return await result
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        name = getattr(handler, "__qualname__", type(handler).__qualname__)
        raise TypeError(f"{name} returned a generator, which never ran; a handler must not yield")
    return result


_forks = 0
_CHILD = 70
"""The exit code of a child that a handler forked and let return: EX_SOFTWARE."""


def _note_fork() -> None:
    # In the child only. A handler that forks may do in the child what it likes, but not return:
    # there would be a second pump on the same connections, settling the same messages.
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)

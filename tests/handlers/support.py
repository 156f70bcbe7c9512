"""What the tests of middleware share: a request, a way to run it, and every middleware."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from handlers import Fallback, LogHandling, MemoryInbox, OnceOnly, Retry, Timeout, Validate
from pump.clock import Clock
from pump.context import Context
from pump.pipeline import Middleware, Proceed, call_constructor, compose, invoker
from pump.processor import Command
from pump.testing.builders import a_delivery, a_message
from pump.testing.virtual_clock import VirtualClock

SECOND = timedelta(seconds=1)


class Pay(Command):
    """The request of these tests."""

    order: str = "A1"


class Counting:
    """A handler that counts its calls and fails when told to."""

    def __init__(self) -> None:
        self.calls = 0
        self.error: Exception | None = None

    async def handle(self, _: Any) -> int:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return self.calls


EVERY_MIDDLEWARE: dict[str, Callable[[], Middleware]] = {
    "LogHandling": LogHandling,
    "LogHandling with details": lambda: LogHandling(details=True),
    "Retry": lambda: Retry(3),
    "Timeout": lambda: Timeout(SECOND),
    "Validate": lambda: Validate(lambda _: True),
    "Fallback": lambda: Fallback(lambda _: "instead"),
    "OnceOnly": lambda: OnceOnly(MemoryInbox()),
}


def a_context(
    clock: Clock | None = None, *, message_id: str = "m1", handler: str = "shop.Pay"
) -> Context:
    """The context of one delivery."""
    delivery = a_delivery(a_message(id=message_id))
    return Context(handler=handler, delivery=delivery, clock=clock or VirtualClock())


async def run(
    handler: Any,
    middleware: Sequence[Middleware] = (),
    *,
    request: Any = None,
    context: Context | None = None,
) -> Any:
    """Run a request through a handler behind middleware, as the processor does."""
    step = invoker(handler, factory=call_constructor, threads=None)
    pipeline = compose(step, (*middleware, *getattr(handler, "middleware", ())))
    return await pipeline(request or Pay(), context or a_context())


def raising(error: BaseException) -> Callable[[Any], Any]:
    """A handler that raises `error`."""

    async def handle(_: Any) -> None:
        raise error

    return handle


async def swallow_everything(request: Any, context: Context, proceed: Proceed) -> Any:
    """A user's careless middleware."""
    try:
        return await proceed(request)
    except Exception:  # broad: that is the point
        return None


async def replace_every_error(request: Any, context: Context, proceed: Proceed) -> Any:
    """A user's middleware that translates what it should not."""
    try:
        return await proceed(request)
    except Exception as error:  # broad: that is the point
        raise RuntimeError("translated") from error

"""`Handler[T]`: what applications subclass."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

from pump.context import Context, current_context
from pump.errors import PumpError
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
        """The delivery, attempt, clock and processor of the request in hand.

        Raises `NoContext` outside of a handling.
        """
        context = current_context()
        if context is None:
            raise NoContext
        return context

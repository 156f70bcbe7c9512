"""A little shop: the requests and handlers that the tests of the app declare."""

from __future__ import annotations

from handlers import Handler
from pump import Command, Event


class Order(Command):
    """Somebody wants something."""

    n: int = 0


class Shipped(Event):
    """Somebody gets something."""

    n: int = 0


class OrderHandler(Handler[Order]):
    """A handler by subclass."""

    async def handle(self, request: Order) -> None:
        return


class Plain:
    """A handler by its method alone."""

    async def handle(self, request: Order) -> None:
        return


async def on_order(request: Order) -> None:
    """A handler that is a function."""


def on_shipped(event: Shipped) -> None:
    """A handler that blocks."""

"""A shop of two steps: an order that is placed is shipped, by another message on another queue."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pump import App, Command, Subscription
from pump.dispatcher import Dispatcher
from pump.observability.telemetry import Telemetry
from pump.ports import Gateway
from pump.stores.spill import MemorySpill


class PlaceOrder(Command):
    """Somebody wants something."""

    order: int = 0


class ShipOrder(Command):
    """Somebody gets something."""

    order: int = 0


class Shop:
    """An app on the queues `orders` and `parcels`."""

    def __init__(
        self, gateway: str | Gateway, telemetry: Telemetry | None, suffix: str = "", **options: Any
    ) -> None:
        self.orders, self.parcels = f"orders{suffix}", f"parcels{suffix}"
        self.app = App(gateway, telemetry=telemetry, **{"spill": MemorySpill(), **options})
        self.shipped: list[int] = []
        self.on_shipping: Callable[[ShipOrder], None] = lambda request: None
        self.app.register(PlaceOrder, self._place)
        self.app.register(ShipOrder, self._ship)
        for queue, request in ((self.orders, PlaceOrder), (self.parcels, ShipOrder)):
            self.app.subscribe(
                Subscription(
                    queue=queue, request=request, dead_letter_queue=f"{queue.rstrip(suffix)}-dead"
                )
            )

    async def _place(self, request: PlaceOrder) -> None:
        await self.app.post(ShipOrder(order=request.order))

    async def _ship(self, request: ShipOrder) -> None:
        self.on_shipping(request)
        self.shipped.append(request.order)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Dispatcher]:
        """Pump beside the body, and drain at its end."""
        async with self.app, self.app.pumping() as dispatcher:
            yield dispatcher


class Spans:
    """The spans that a provider of the test's own has seen the end of."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def all(self) -> Sequence[ReadableSpan]:
        """All of them, in the order in which they ended."""
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        """Those of one name."""
        return [each for each in self.all() if each.name == name]

    def one(self, name: str) -> ReadableSpan:
        """The only one of that name."""
        [found] = self.named(name)
        return found


def id_of(span: ReadableSpan) -> int:
    """A span's own id."""
    assert span.context is not None
    return int(span.context.span_id)


def trace_of(span: ReadableSpan) -> int:
    """The id of a span's trace."""
    assert span.context is not None
    return int(span.context.trace_id)


def parent_of(span: ReadableSpan) -> int | None:
    """The id of a span's parent; None for a root."""
    return None if span.parent is None else span.parent.span_id


def linked_from(span: ReadableSpan) -> list[int]:
    """The ids of the spans it links to."""
    return [link.context.span_id for link in span.links]

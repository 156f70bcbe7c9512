"""A rig: an app on a faulty memory gateway and virtual time, whose handler a test scripts."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from pump import App, Command, Subscription
from pump.context import current_context
from pump.dispatcher import Dispatcher
from pump.events import Event, LeaseLostEvent, OutcomeEvent, PumpStateEvent
from pump.message import Delivery, Message
from pump.pipeline import Middleware
from pump.ports import QueueStats
from pump.stores.spill import MemorySpill
from pump.subscription import MakeChannels, QueueSpec
from pump.testing.virtual_clock import VirtualClock

from .faulty_gateway import FaultyGateway, Record

_E = TypeVar("_E", bound=Event)
Behaviour = Callable[["Work"], Awaitable[None]]


class Work(Command):
    """A piece of work, known by its number."""

    n: int


async def succeed(work: Work) -> None:
    """The handler that has nothing against anything."""


class Rig:
    """Subscribes `orders` to `Work`; `subscription` fields by keyword.

    Inside `async with` the app is open; `start` starts its dispatcher. `behaviour` is what the
    handler does, and may be changed at any time.
    """

    def __init__(
        self,
        behaviour: Behaviour = succeed,
        *,
        gateway: FaultyGateway | None = None,
        clock: VirtualClock | None = None,
        middleware: Iterable[Middleware] = (),
        **subscription: Any,
    ) -> None:
        self.clock = clock or VirtualClock(chance=0.0)
        self.gateway = gateway or FaultyGateway(self.clock)
        self.spill = MemorySpill()
        self.behaviour = behaviour
        self.events: list[Event] = []
        self.started: list[int] = []
        self.ended: list[int] = []
        self.cancelled: list[int] = []
        self.most_at_once = 0
        self.attempts: Counter[int] = Counter()
        self._in_hand: list[int] = []
        self.app = App(
            self.gateway,
            clock=self.clock,
            spill=self.spill,
            middleware=middleware,
            observers=[self.events.append],
        )
        self.app.register(Work, self._handle)
        self.subscription = self.app.subscribe(
            Subscription(
                queue="orders", **{"request": Work, "dead_letter_queue": "dead", **subscription}
            )
        )
        self._dispatcher: Dispatcher | None = None
        self.running: asyncio.Task[None] | None = None

    @property
    def record(self) -> Record:
        """What the broker saw."""
        return self.gateway.record

    @property
    def dispatcher(self) -> Dispatcher:
        """The dispatcher, once started."""
        assert self._dispatcher is not None
        return self._dispatcher

    @property
    def outcomes(self) -> list[OutcomeEvent]:
        """What observers were told of messages."""
        return self.told(OutcomeEvent)

    @property
    def lost(self) -> list[LeaseLostEvent]:
        """What observers were told of leases."""
        return self.told(LeaseLostEvent)

    @property
    def states(self) -> list[str]:
        """What observers were told of pumps."""
        return [event.state for event in self.told(PumpStateEvent)]

    def told(self, kind: type[_E]) -> list[_E]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    async def __aenter__(self) -> Self:
        await self.app.__aenter__()
        for spec in self.subscription.queue_specs():
            await self.gateway._inner.admin().ensure(spec, MakeChannels.CREATE)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.running is not None and not self.running.done():
            self.dispatcher.stop_now()
            for _ in range(10):
                if not self.running.done():
                    await self.clock.advance(1)
            assert self.running.done(), "the dispatcher did not stop"
        await self.app.__aexit__(kind, error, trace)

    async def start(self) -> None:
        """Run the app's pumps, and wait until they wait."""
        self._dispatcher = self.app.dispatcher()
        self.running = asyncio.create_task(self._dispatcher.run(), name="rig")
        await self.clock.settle()

    async def drain(self) -> None:
        """Drain at the present moment: no time passes."""
        self.dispatcher.drain()
        await self.clock.settle()

    async def finish(self) -> None:
        """Drain, and return (or raise) what the dispatcher returns."""
        await self.drain()
        assert self.running is not None
        assert self.running.done(), "the pump did not drain at once"
        await self.running

    async def send(self, *numbers: int, group: str | None = None, **options: Any) -> list[str]:
        """Post pieces of work one by one."""
        return [await self.app.post(Work(n=n), group=group, **options) for n in numbers]

    async def send_raw(self, message: Message, queue: str = "orders") -> None:
        """Send a message as a stranger would."""
        await self.gateway._inner.producer(queue).send([message])

    async def depth(self, queue: str = "orders") -> QueueStats:
        """What is in a queue now."""
        [stats] = [each for each in await self.gateway.admin().queues() if each.name == queue]
        return stats

    async def total(self, queue: str = "orders") -> int:
        """How many messages a queue holds, in whatever state."""
        stats = await self.depth(queue)
        return stats.visible + stats.in_flight + stats.delayed

    async def messages(self, queue: str) -> Sequence[Message]:
        """The visible messages of a queue."""
        return await self.gateway.admin().peek(queue, max_count=1_000)

    async def make_queue(self, name: str) -> None:
        """Have one more queue."""
        await self.gateway._inner.admin().ensure(QueueSpec(name=name), MakeChannels.CREATE)

    async def _handle(self, work: Work) -> None:
        self.started.append(work.n)
        context = current_context()
        assert context is not None
        self.attempts[work.n] = context.attempt
        self._in_hand.append(work.n)
        self.most_at_once = max(self.most_at_once, self.running_count)
        try:
            await self.behaviour(work)
        except asyncio.CancelledError:
            self.cancelled.append(work.n)
            raise
        finally:
            self._in_hand.remove(work.n)
        self.ended.append(work.n)

    @property
    def running_count(self) -> int:
        """How many handlers run now."""
        return len(self._in_hand)


class Gate:
    """A handler that waits until the test lets it go on, all at once or one by one."""

    def __init__(self) -> None:
        self._events: dict[int, asyncio.Event] = {}
        self._all = False

    async def __call__(self, work: Work) -> None:
        if not self._all:
            await self._events.setdefault(work.n, asyncio.Event()).wait()

    def open(self, *numbers: int) -> None:
        """Let these finish; without a number, everything from now on."""
        self._all = self._all or not numbers
        for number in numbers or tuple(self._events):
            self._events.setdefault(number, asyncio.Event()).set()


def receipts_settled(deliveries: Iterable[Delivery]) -> Counter[str]:
    """How often each receipt was settled."""
    return Counter(delivery.receipt for delivery in deliveries)

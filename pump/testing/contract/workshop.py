"""The workshop: a whole app, with its pump, on the gateway under test, and its diary."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import attrs
import msgspec

from ...app import App
from ...capabilities import Capabilities
from ...clock import Clock
from ...context import current_context
from ...dispatcher import Dispatcher
from ...errors import ConnectionFailed
from ...events import Event, OutcomeEvent
from ...message import Delivery, Message, new_id
from ...outcome import Ack, Refusal, Settlement
from ...ports import AdminPort, ConsumerPort, Gateway, ProducerPort
from ...processor import Command
from ...stores.spill import MemorySpill
from ...subscription import Subscription
from .rig import Rig

Entry = tuple[str, str]
"""What happened, and to which message: ("ack", id), ("sent", id), ("handled", id) …"""


class Job(Command):
    """The request of the workshop's tests; `task` tells its handler what to do."""

    task: str = "work"


class Outage:
    """How many calls the broker still fails to answer, by operation."""

    def __init__(self, **failures: int) -> None:
        self._left = failures

    @property
    def is_over(self) -> bool:
        """Whether every ordered failure has happened."""
        return not any(self._left.values())

    def strike(self, operation: str) -> None:
        """Fail like a lost connection, as often as was ordered."""
        if self._left.get(operation, 0):
            self._left[operation] -= 1
            raise ConnectionFailed("the broker under test", f"ordered failure of {operation}")


@attrs.frozen(eq=False)
class WatchedConsumer:
    """A consumer port that notes in the diary what the broker confirmed."""

    inner: ConsumerPort
    diary: list[Entry]
    outage: Outage

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        self.outage.strike("receive")
        return await self.inner.receive(max_count=max_count, wait_s=wait_s)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        self.outage.strike("settle")
        refusals = await self.inner.settle(settlements)
        refused = {refusal.delivery for refusal in refusals}
        for each in settlements:
            if each.delivery not in refused:
                verb = type(each.action).__name__.lower()
                self.diary.append((verb, each.delivery.message.id))
                self.diary.append(("settled receipt", each.delivery.receipt))
        return refusals

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> Sequence[Refusal]:
        self.outage.strike("extend")
        return await self.inner.extend(deliveries, lease_s=lease_s)

    async def aclose(self) -> None:
        await self.inner.aclose()


@attrs.frozen(eq=False)
class WatchedProducer:
    """A producer port that notes in the diary what the broker accepted."""

    inner: ProducerPort
    diary: list[Entry]
    outage: Outage

    async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
        self.outage.strike("send")
        ids = await self.inner.send(messages, delay_s=delay_s)
        self.diary.extend(("sent", id_) for id_ in ids)
        return ids

    async def aclose(self) -> None:
        await self.inner.aclose()


@attrs.frozen(eq=False)
class WatchedGateway:
    """The gateway under test, with a diary, staying open when the app on it closes."""

    inner: Gateway
    diary: list[Entry]
    outage: Outage

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    async def open(self) -> None:
        await self.inner.open()

    async def aclose(self) -> None:
        """Does nothing: the rig closes the gateway it made."""

    def consumer(self, subscription: Subscription) -> ConsumerPort:
        return WatchedConsumer(self.inner.consumer(subscription), self.diary, self.outage)

    def producer(self, queue: str) -> ProducerPort:
        self.diary.append(("producer", queue))
        return WatchedProducer(self.inner.producer(queue), self.diary, self.outage)

    def admin(self) -> AdminPort:
        return self.inner.admin()


class Workshop:
    """An app with one subscription whose handler is the test's, and what was seen of it."""

    def __init__(
        self,
        rig: Rig,
        handle: Callable[[Job], Awaitable[None]],
        *,
        base: str = "jobs",
        gateway: Gateway | None = None,
        outage: Outage | None = None,
        middleware: Sequence[Any] = (),
        **fields: Any,
    ) -> None:
        self.rig = rig
        self.diary: list[Entry] = []
        self.events: list[Event] = []
        self.spill = MemorySpill()
        # Long, unless the test is about leases: on a busy machine an answer may come late, and
        # a handler that lost its lease cannot know whether its ack was applied.
        fields.setdefault("lease", timedelta(seconds=10 * rig.lease_s))
        self.subscription = rig.subscription(base, request=Job, **fields)
        assert isinstance(rig.clock, Clock)
        self.app = App(
            WatchedGateway(gateway or rig.gateway, self.diary, outage or Outage()),
            middleware=middleware,
            observers=[self.events.append],
            spill=self.spill,
            clock=rig.clock,
        )
        self.app.register(Job, handle)
        self.app.subscribe(self.subscription)

    @property
    def outcomes(self) -> list[OutcomeEvent]:
        """What observers were told of deliveries."""
        return [event for event in self.events if isinstance(event, OutcomeEvent)]

    def noted(self, *verbs: str) -> list[Entry]:
        """The diary's entries with these verbs, in order."""
        return [entry for entry in self.diary if entry[0] in verbs]

    @asynccontextmanager
    async def working(self) -> AsyncIterator[Dispatcher]:
        """Pump while the block runs; drain at its end."""
        async with self.app:
            dispatcher = self.app.dispatcher()
            running = self.rig.start(dispatcher.run())
            await self.until(dispatcher.channels_made.is_set)
            try:
                yield dispatcher
            finally:
                dispatcher.drain()
                await self.until(running.done)
                await running

    async def post(self, *tasks: str, **options: Any) -> list[str]:
        """Send a job for each task and return the ids."""
        if self.rig.has_groups_of_one:
            messages = [
                Message(body=msgspec.json.encode({"task": task}), type="Job", group=new_id())
                for task in tasks
            ]
            queue = self.subscription.queue
            return list(await self.app.post_all(messages, queue=queue, **options))
        return list(await self.app.post_all([Job(task) for task in tasks], **options))

    async def until(self, is_so: Callable[[], bool], *, ticks: int = 80) -> None:
        """Let time pass until something is so; fail when it is not after that many ticks."""
        clock, step_s = self.rig.clock, self.rig.tick_s / 10
        began_at_s = clock.now_s()
        deadline_s = began_at_s + ticks * self.rig.tick_s
        while True:
            await self.rig.settle()
            if is_so():
                return
            if clock.now_s() >= deadline_s:
                raise AssertionError(self._not_so(is_so, clock.now_s() - began_at_s))
            await clock.advance(step_s)

    def _not_so(self, is_so: Callable[[], bool], waited_s: float) -> str:
        counts = Counter(verb for verb, _ in self.diary)
        seen = ", ".join(f"{count} × {verb}" for verb, count in counts.items()) or "nothing"
        latest = "\n".join(f"  {verb} {id_}" for verb, id_ in self.diary[-40:])
        told = ", ".join(each.status.value for each in self.outcomes[-40:]) or "none"
        return (
            f"after {waited_s:g} s still not so: {_wording(is_so)}\n"
            f"the broker confirmed {seen}; outcomes told: {told}\n{latest}"
        )

    async def find(self, queue: str | None, count: int) -> list[Message]:
        """Receive that many messages from another queue of the subscription."""
        assert queue is not None
        return await self.rig.channel(
            Subscription(
                queue=queue,
                request=Job,
                lease=self.subscription.lease,
                options=self.rig.options,
            )
        ).take_and_ack(count)


def _wording(is_so: Callable[[], bool]) -> str:
    """What is waited for, as the test says it."""
    try:
        return inspect.getsource(is_so).strip()
    except (OSError, TypeError):
        return getattr(is_so, "__qualname__", repr(is_so))


def current_message_id() -> str:
    """The id of the current message."""
    context = current_context()
    assert context is not None
    assert context.message is not None
    return context.message.id


def acked_ids(workshop: Workshop) -> list[str]:
    """The ids of the messages the broker was told to remove, in order."""
    verb = Ack.__name__.lower()
    return [id_ for _, id_ in workshop.noted(verb)]

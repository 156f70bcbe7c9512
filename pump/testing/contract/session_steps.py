"""The steps of the session tests: accepting and working, whatever the provider lets one choose."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import attrs

from ...app import App
from ...capabilities import Capabilities
from ...clock import Clock
from ...consumer import Consumer
from ...errors import SessionLockLost
from ...message import Delivery
from ...outcome import Settlement
from ...ports import AdminPort, ConsumerPort, Gateway, ProducerPort, SessionGateway, SessionPort
from ...stores.spill import MemorySpill
from ...subscription import Subscription
from ..builders import a_message
from .rig import Channel, Rig

LONG_LEASE_TICKS = 20
"""The lease of tests that are not about its end."""


async def open_sessions(rig: Rig, bodies: str = "", **fields: Any) -> Channel:
    """A queue that holds one message a word, in the session of its first letter."""
    rig.needs("has_sessions")
    fields.setdefault("lease", timedelta(seconds=LONG_LEASE_TICKS * rig.tick_s))
    queue = await rig.open_ordered_queue(**fields)
    await send(queue, bodies)
    return queue


async def send(queue: Channel, bodies: str) -> None:
    """Send one message a word, in the session of its first letter."""
    if words := bodies.split():
        await queue.send(*(a_message(word, group=word[0]) for word in words))


def choice(rig: Rig, session: str) -> str | None:
    """The session by its id; the next one where the provider chooses."""
    return session if rig.capabilities.has_session_choice else None


def session_gateway(rig: Rig) -> SessionGateway:
    """The gateway under test, which says that it has sessions."""
    assert isinstance(rig.gateway, SessionGateway)
    return rig.gateway


async def accept(queue: Channel, session: str | None = None) -> SessionPort | None:
    """A session that is free now, if there is one."""
    return await _accept(queue, session, queue.rig.poll_s)


async def hold(queue: Channel, session: str | None = None) -> SessionPort:
    """A session that must be free now."""
    accepted = await _accept(queue, session, queue.rig.sure_s)
    assert accepted is not None, "no session was free"
    return accepted


async def _accept(queue: Channel, session: str | None, wait_s: float) -> SessionPort | None:
    return await session_gateway(queue.rig).accept_session(
        queue.subscription, session, wait_s=wait_s
    )


async def is_locked(queue: Channel, session: str) -> bool:
    """Whether no other client can accept a session that has messages, the only one left."""
    accepted = await session_gateway(queue.rig).accept_session(
        queue.subscription, choice(queue.rig, session), wait_s=0.0
    )
    if accepted is None:
        return True
    await accepted.aclose()
    return False


def start_accept(
    queue: Channel, session: str | None, *, wait_s: float
) -> asyncio.Task[SessionPort | None]:
    """Begin to accept and go on without waiting for it."""
    gateway = session_gateway(queue.rig)

    async def accepting() -> SessionPort | None:
        return await gateway.accept_session(queue.subscription, session, wait_s=wait_s)

    return queue.rig.start(accepting())


async def take(queue: Channel, session: SessionPort, count: int) -> list[Delivery]:
    """Receive until there are `count`, or the session gives no more."""
    taken: list[Delivery] = []
    while len(taken) < count:
        batch = await session.receive(max_count=count - len(taken), wait_s=queue.rig.poll_s)
        if not batch:
            break
        taken.extend(batch)
    return taken


async def take_on(queue: Channel, session: SessionPort, count: int) -> list[Delivery]:
    """As `take`; a session that the provider ended is accepted again."""
    taken = await take(queue, session, count)
    if taken:
        return taken
    await session.aclose()
    return await take(queue, await hold(queue, choice(queue.rig, session.id)), count)


async def settle(session: SessionPort, *settlements: Settlement) -> None:
    """Settle what is in flight, all of which must be accepted."""
    assert list(await session.settle(settlements)) == []


async def is_fenced(session: SessionPort, settlement: Settlement) -> bool:
    """Whether a settlement is turned away for good."""
    try:
        refusals = await session.settle([settlement])
    except SessionLockLost:
        return True
    return [refusal.is_final for refusal in refusals] == [True]


async def gives_nothing(session: SessionPort) -> bool:
    """Whether a session that lost its lock hands out no message."""
    try:
        return not await session.receive(max_count=10, wait_s=0.0)
    except SessionLockLost:
        return True


def text_of(deliveries: Iterable[Delivery]) -> str:
    """The bodies, one after the other."""
    return b"".join(each.message.body for each in deliveries).decode()


@attrs.frozen(eq=False)
class SharedGateway:
    """The gateway under test as one client has it: it stays open when the client closes."""

    inner: Gateway

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    async def open(self) -> None:
        await self.inner.open()

    async def aclose(self) -> None:
        """Does nothing: the rig closes the gateway it made."""

    def consumer(self, subscription: Subscription) -> ConsumerPort:
        return self.inner.consumer(subscription)

    def producer(self, queue: str) -> ProducerPort:
        return self.inner.producer(queue)

    def admin(self) -> AdminPort:
        return self.inner.admin()

    async def accept_session(
        self, subscription: Subscription, session: str | None, *, wait_s: float
    ) -> SessionPort | None:
        assert isinstance(self.inner, SessionGateway)
        return await self.inner.accept_session(subscription, session, wait_s=wait_s)


@asynccontextmanager
async def clients(queue: Channel, count: int = 2) -> AsyncIterator[Sequence[Consumer]]:
    """Consumers of the queue, as so many programs would have them."""
    rig = queue.rig
    assert isinstance(rig.clock, Clock)
    app = App(SharedGateway(rig.gateway), clock=rig.clock, spill=MemorySpill())
    async with app:
        if count == 1:
            async with app.consumer(queue.subscription) as consumer:
                yield [consumer]
            return
        async with (
            app.consumer(queue.subscription) as one,
            app.consumer(queue.subscription) as other,
        ):
            yield [one, other]

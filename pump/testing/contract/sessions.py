"""Contract: a session gives one group to one consumer, in order, and takes back what it hands back.

Where the provider chooses the session (`has_session_choice` is False) it may also end one with
what it gave; the tests then accept it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import attrs
import pytest

from ...app import App
from ...capabilities import Capabilities
from ...clock import Clock
from ...consumer import Consumer
from ...errors import SessionLocked, SessionLockLost, UnsupportedOperation
from ...message import Delivery
from ...outcome import Settlement
from ...ports import AdminPort, ConsumerPort, Gateway, ProducerPort, SessionGateway, SessionPort
from ...stores.spill import MemorySpill
from ...subscription import Subscription
from ..builders import a_message, abandon, ack, defer
from .rig import Channel, ContractTests, Rig

# The steps of the session tests: accepting and working, whatever the provider lets one choose.

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


class SessionContract(ContractTests):
    """R40, R42, and what `SessionPort` promises."""

    async def test_when_a_session_is_accepted_by_its_id_then_it_gives_its_messages_only(
        self, rig: Rig
    ) -> None:
        """R40: in order."""
        rig.needs("has_session_choice")
        queue = await open_sessions(rig, "a1 b1 b2 a2 b3")

        session = await hold(queue, "b")

        assert session.id == "b"
        received = await take(queue, session, 5)
        assert text_of(received) == "b1b2b3"
        await settle(session, *map(ack, received))

    async def test_when_the_next_session_is_accepted_then_it_is_one_that_has_messages(
        self, rig: Rig
    ) -> None:
        """R40."""
        queue = await open_sessions(rig, "a1 a2")

        session = await hold(queue)

        assert session.id == "a"
        assert text_of(await take(queue, session, 3)) == "a1a2"

    async def test_when_no_session_has_messages_then_none_is_accepted(self, rig: Rig) -> None:
        """R40: to find nothing is no error."""
        queue = await open_sessions(rig)

        accepting = start_accept(queue, None, wait_s=0.0)

        assert await rig.ends(accepting), rig.late(accepting)
        assert await accepting is None

    async def test_when_a_session_without_messages_is_accepted_then_it_waits_for_them(
        self, rig: Rig
    ) -> None:
        """R40: of its own group alone."""
        rig.needs("has_session_choice")
        queue = await open_sessions(rig)
        session = await hold(queue, "a")

        waiting = rig.start(session.receive(max_count=5, wait_s=rig.long_s))
        await rig.settle()
        await send(queue, "b1 a1")

        assert await rig.ends(waiting), rig.late(waiting)
        assert text_of(await waiting) == "a1"

    async def test_when_a_message_comes_then_who_waits_for_the_next_session_has_it(
        self, rig: Rig
    ) -> None:
        """R40: at once."""
        queue = await open_sessions(rig)
        waiting = start_accept(queue, None, wait_s=rig.long_s)
        await rig.settle()

        await send(queue, "a1")

        assert await rig.ends(waiting), rig.late(waiting)
        session = await waiting
        assert session is not None
        assert text_of(await take(queue, session, 2)) == "a1"

    async def test_when_a_session_is_held_then_nobody_else_gets_it_and_others_stay_free(
        self, rig: Rig
    ) -> None:
        """R40."""
        queue = await open_sessions(rig, "a1 a2 b1")

        one = await hold(queue)
        other = await hold(queue)

        assert sorted([one.id, other.id]) == ["a", "b"]
        assert await accept(queue) is None
        received = [*await take(queue, one, 3), *await take(queue, other, 3)]
        assert sorted(each.message.body for each in received) == [b"a1", b"a2", b"b1"]

    async def test_when_a_session_is_held_then_accepting_it_by_its_id_fails(self, rig: Rig) -> None:
        """R40: before it has given a message, and while it has none."""
        rig.needs("has_session_choice")
        queue = await open_sessions(rig, "a1 b1")

        await hold(queue, "a")
        await hold(queue, "c")

        assert await accept(queue, "a") is None
        assert await accept(queue, "c") is None
        assert (await hold(queue, "b")).id == "b"

    async def test_when_a_session_is_held_then_accepting_it_raises_a_lock_error(
        self, rig: Rig
    ) -> None:
        """R40."""
        rig.needs("has_session_choice")
        queue = await open_sessions(rig, "a1")

        async with clients(queue) as (one, other):
            async with await one.accept_session("a"):
                with pytest.raises(SessionLocked) as caught:
                    await other.accept_session("a")

            assert (caught.value.queue, caught.value.session) == (queue.name, "a")
            async with await other.accept_session("a") as session:
                assert text_of(await session.receive(wait=rig.patience)) == "a1"

    async def test_when_a_session_is_held_then_ordinary_consumers_do_not_get_its_messages(
        self, rig: Rig
    ) -> None:
        """R40: neither those that were there nor those that come."""
        rig.needs("has_groups")
        queue = await open_sessions(rig, "a1 a2")
        session = await hold(queue)

        await send(queue, "a3 b1")

        assert text_of(await queue.take(3)) == "b1"
        assert text_of(await take(queue, session, 2)) == "a1a2"

    async def test_when_every_session_is_worked_off_then_each_group_came_in_order(
        self, rig: Rig
    ) -> None:
        """R40, R42: with the loop that `Session` shows, on every provider."""
        queue = await open_sessions(rig, "a1 b1 c1 a2 b2 a3")
        wait = timedelta(seconds=rig.poll_s)
        seen: dict[str, str] = {}

        async with clients(queue, 1) as [consumer]:
            while session := await consumer.accept_session(wait=wait):
                async with session:
                    while deliveries := await session.receive(10, wait=wait):
                        for delivery in deliveries:
                            seen[session.id] = seen.get(session.id, "") + text_of([delivery])
                            await session.ack(delivery)

        assert seen == {"a": "a1a2a3", "b": "b1b2", "c": "c1"}
        assert await accept(queue) is None

    async def test_when_a_session_is_active_then_messages_that_come_join_it_in_order(
        self, rig: Rig
    ) -> None:
        """R40: at once, or when it is accepted again."""
        queue = await open_sessions(rig, "a1")
        session = await hold(queue)
        [first] = await take(queue, session, 1)

        await send(queue, "a2 a3")
        await settle(session, ack(first))

        assert text_of(await take_on(queue, session, 3)) == "a2a3"

    async def test_when_fewer_are_asked_of_a_session_than_it_has_then_the_rest_comes_next(
        self, rig: Rig
    ) -> None:
        """R40, R3."""
        queue = await open_sessions(rig, "a1 a2 a3")
        session = await hold(queue)

        first = await session.receive(max_count=2, wait_s=rig.sure_s)

        assert 1 <= len(first) <= 2
        rest = await take(queue, session, 3)
        assert text_of([*first, *rest]) == "a1a2a3"

    async def test_when_acked_in_a_session_then_the_message_never_comes_back(
        self, rig: Rig
    ) -> None:
        """R40, R5."""
        queue = await open_sessions(rig, "a1 a2")
        session = await hold(queue)
        first, _ = await take(queue, session, 2)

        await settle(session, ack(first))
        await session.aclose()

        again = await hold(queue, choice(rig, "a"))
        assert text_of(await take(queue, again, 3)) == "a2"

    async def test_when_the_head_of_a_session_is_deferred_then_the_session_waits_for_it(
        self, rig: Rig
    ) -> None:
        """Port: it comes again before its successors, returned or not."""
        queue = await open_sessions(rig, "a1 a2 a3")
        session = await hold(queue)
        head, successor = await take(queue, session, 2)

        await settle(session, defer(head, seconds=2 * rig.tick_s), abandon(successor))

        assert list(await session.receive(max_count=5, wait_s=0.0)) == []
        await rig.advance(2 * rig.tick_s)
        again = await take_on(queue, session, 5)
        assert text_of(again) == "a1a2a3"
        assert again[0].attempt == 2

    async def test_when_a_deferred_session_is_closed_then_it_is_no_next_one_before_it_is_due(
        self, rig: Rig
    ) -> None:
        """R40: there is nothing to be done in it."""
        queue = await open_sessions(rig, "a1 a2")
        session = await hold(queue)
        [head] = await take(queue, session, 1)

        await settle(session, defer(head, seconds=3 * rig.tick_s))
        await session.aclose()

        assert await accept(queue) is None
        await rig.advance(3 * rig.tick_s)
        assert text_of(await take(queue, await hold(queue), 3)) == "a1a2"

    @pytest.mark.parametrize("give_back", [abandon, defer], ids=["abandon", "defer"])
    async def test_when_the_head_of_a_session_is_given_back_then_it_comes_before_its_successors(
        self, rig: Rig, give_back: Callable[[Delivery], Settlement]
    ) -> None:
        """Port: at once."""
        queue = await open_sessions(rig, "a1 a2 a3")
        session = await hold(queue)
        head, successor = await take(queue, session, 2)

        await settle(session, give_back(head), abandon(successor))

        again = await take_on(queue, session, 5)
        assert text_of(again) == "a1a2a3"
        if rig.abandons_uncounted:
            assert again[0].attempt == (2 if give_back is defer else 1)

    async def test_when_a_delivery_is_settled_twice_in_a_session_then_the_second_is_refused(
        self, rig: Rig
    ) -> None:
        """Port: at most once, as outside of sessions."""
        queue = await open_sessions(rig, "a1 a2")
        session = await hold(queue)
        first, _ = await take(queue, session, 2)
        await settle(session, ack(first))

        [refusal] = await session.settle([ack(first)])

        assert refusal.delivery is first
        assert refusal.is_final

    async def test_when_the_provider_chooses_then_a_session_by_its_id_is_refused(
        self, rig: Rig
    ) -> None:
        """R42: it says so, and locks nothing."""
        queue = await open_sessions(rig, "a1")
        if rig.capabilities.has_session_choice:
            pytest.skip("needs a provider that chooses the session")

        with pytest.raises(UnsupportedOperation):
            await session_gateway(rig).accept_session(queue.subscription, "a", wait_s=0.0)

        assert not await is_locked(queue, "a")

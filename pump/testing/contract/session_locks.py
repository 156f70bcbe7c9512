"""Contract: a session's lock is renewed while it is active, let go at its end, and lost in time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial

import pytest

from ...clock import yield_to_loop
from ...errors import SessionLockLost
from ...ports import SessionPort
from ..builders import ack, defer
from .rig import ContractTests, Rig
from .sending import cancel_after
from .sessions import (
    accept,
    choice,
    clients,
    gives_nothing,
    hold,
    is_fenced,
    is_locked,
    open_sessions,
    send,
    settle,
    start_accept,
    take,
    take_on,
    text_of,
)


class SessionLockContract(ContractTests):
    """R40, R41."""

    async def test_when_a_session_is_closed_then_what_was_in_hand_comes_again_first(
        self, rig: Rig
    ) -> None:
        """R40: without waiting for a lease."""
        queue = await open_sessions(rig, "a1 a2 a3 a4")
        session = await hold(queue)
        first, *_ = await take(queue, session, 3)
        await settle(session, ack(first))

        await session.aclose()

        again = await take(queue, await hold(queue, choice(rig, "a")), 4)
        assert text_of(again) == "a2a3a4"
        if rig.abandons_uncounted:
            assert {each.attempt for each in again} == {1}

    async def test_when_sessions_hand_back_again_and_again_then_all_attempts_are_left(
        self, rig: Rig
    ) -> None:
        """T5: what was not tried does not count, and keeps its place."""
        rig.needs_uncounted_abandon()
        queue = await open_sessions(rig, "a1 a2 a3")

        for _ in range(3):
            session = await hold(queue, choice(rig, "a"))
            assert text_of(await take(queue, session, 3)) == "a1a2a3"
            await session.aclose()

        again = await take(queue, await hold(queue, choice(rig, "a")), 4)
        assert text_of(again) == "a1a2a3"
        assert [each.attempt for each in again] == [1, 1, 1]

    async def test_when_tried_in_a_session_that_is_closed_then_the_next_goes_on_counting(
        self, rig: Rig
    ) -> None:
        """R17, T5: as often as it was tried, and its successors not at all."""
        queue = await open_sessions(rig, "a1 a2")
        if rig.abandons_uncounted:
            untried = await hold(queue, choice(rig, "a"))
            await take(queue, untried, 2)
            await untried.aclose()
        session = await hold(queue, choice(rig, "a"))

        for _ in range(2):
            head, *_ = await take_on(queue, session, 1)
            await settle(session, defer(head))
        await session.aclose()

        again = await take(queue, await hold(queue, choice(rig, "a")), 3)
        assert (text_of(again[:1]), again[0].attempt >= 3) == ("a1", True)
        if rig.abandons_uncounted:
            assert text_of(again) == "a1a2"
            assert [each.attempt for each in again] == [3, 1]

    async def test_when_a_session_is_closed_then_who_waits_for_it_has_it(self, rig: Rig) -> None:
        """R40: at once."""
        queue = await open_sessions(rig, "a1")
        session = await hold(queue)
        waiting = start_accept(queue, choice(rig, "a"), wait_s=rig.long_s)
        await rig.settle()

        await session.aclose()

        assert await rig.ends(waiting), rig.late(waiting)
        assert await waiting is not None

    async def test_when_a_session_stays_locked_then_accepting_gives_up_after_its_wait(
        self, rig: Rig
    ) -> None:
        """R40: not before."""
        queue = await open_sessions(rig, "a1")
        await hold(queue)

        waiting = start_accept(queue, choice(rig, "a"), wait_s=2 * rig.tick_s)

        assert await rig.ends(waiting, within_s=2 * rig.tick_s), rig.late(waiting)
        assert rig.took_s(waiting) >= rig.tick_s
        assert await waiting is None

    async def test_when_a_sessions_lock_is_renewed_then_it_lasts_a_whole_lease_from_then_on(
        self, rig: Rig
    ) -> None:
        """R40: with what is in flight."""
        queue = await open_sessions(rig, "a1 a2", lease=rig_lease(rig))
        session = await hold(queue)
        held = await take(queue, session, 2)
        first_end_s = session.lock_expires_at_s
        await rig.clock.advance(2 * rig.tick_s)

        await session.renew()

        await rig.clock.advance(2 * rig.tick_s)
        assert await is_locked(queue, "a")
        if first_end_s is not None:
            assert session.lock_expires_at_s is not None
            assert session.lock_expires_at_s > first_end_s
        await settle(session, *map(ack, held))

    async def test_when_a_session_is_active_then_its_lock_outlasts_its_lease(
        self, rig: Rig
    ) -> None:
        """R40: the pump renews it, with a message in flight."""
        queue = await open_sessions(rig, "a1", lease=rig_lease(rig))

        async with clients(queue) as (one, _):
            session = await one.accept_session(choice(rig, "a"), wait=rig.patience)
            assert session is not None
            async with session:
                [held] = await session.receive(wait=rig.patience)
                await rig.clock.advance(2 * rig.lease_s)

                assert await is_locked(queue, "a")
                await session.ack(held)

    async def test_when_a_session_is_idle_then_its_lock_expires_on_time_and_another_gets_it(
        self, rig: Rig
    ) -> None:
        """R41: the first gets `SessionLockLost` at its next call, whichever that is."""
        lease = rig_lease(rig)
        # Renewed until there was no call for `max_lease`; what was granted last is the rest.
        queue = await open_sessions(rig, "a1", lease=lease, max_lease=lease)
        patience = rig.patience

        async with clients(queue) as (one, other):
            idle = await one.accept_session(choice(rig, "a"), wait=patience)
            assert idle is not None
            [held] = await idle.receive(wait=patience)
            await rig.clock.advance(rig.lease_s)
            was_locked = await is_locked(queue, "a")
            await rig.advance(rig.lease_s)

            session = await other.accept_session(choice(rig, "a"), wait=patience)

            assert was_locked
            assert session is not None
            [again] = await session.receive(wait=patience)
            assert (again.message.id, again.attempt) == (held.message.id, 2)
            calls: list[Callable[[], Awaitable[object]]] = [
                idle.receive,
                partial(idle.ack, held),
                idle.renew,
            ]
            for call in calls:
                with pytest.raises(SessionLockLost):
                    await call()
            await session.ack(again)

    async def test_when_a_lock_ends_then_who_waits_for_the_session_has_it(self, rig: Rig) -> None:
        """R41: the wait ends with the lock, not with the timeout."""
        queue = await open_sessions(rig, "a1", lease=rig_lease(rig))
        await hold(queue)

        waiting = start_accept(queue, choice(rig, "a"), wait_s=rig.long_s)

        assert await rig.ends(waiting, within_s=rig.lease_s), rig.late(waiting)
        session = await waiting
        assert session is not None
        assert text_of(await take(queue, session, 2)) == "a1"

    async def test_when_a_lock_is_lost_then_the_session_changes_nothing_any_more(
        self, rig: Rig
    ) -> None:
        """R41: neither before another has it nor after."""
        queue = await open_sessions(rig, "a1 a2", lease=rig_lease(rig))
        lost = await hold(queue)
        stale, _ = await take(queue, lost, 2)
        await rig.advance(rig.lease_s)

        assert await is_fenced(lost, ack(stale))
        session = await hold(queue, choice(rig, "a"))
        held = await take(queue, session, 3)
        assert await is_fenced(lost, ack(stale))
        assert await gives_nothing(lost)
        with pytest.raises(SessionLockLost):
            await lost.renew()

        assert text_of(held) == "a1a2"
        await settle(session, *map(ack, held))

    async def test_when_a_lost_session_is_closed_then_its_successor_keeps_the_lock(
        self, rig: Rig
    ) -> None:
        """R41: it is let go of in silence."""
        queue = await open_sessions(rig, "a1 a2", lease=rig_lease(rig))
        lost = await hold(queue)
        await take(queue, lost, 2)
        await rig.advance(rig.lease_s)
        session = await hold(queue, choice(rig, "a"))
        held = await take(queue, session, 2)

        await lost.aclose()

        assert await is_locked(queue, "a")
        await settle(session, *map(ack, held))

    @pytest.mark.parametrize("turns", range(6))
    async def test_when_accepting_a_session_is_cancelled_then_nothing_stays_locked(
        self, rig: Rig, turns: int
    ) -> None:
        """R40; law 6: wherever the cancellation falls."""
        queue = await open_sessions(rig, "a1 a2")

        session = choice(rig, "a")
        await cancel_accept(turns, start_accept(queue, session, wait_s=rig.tick_s))
        await rig.settle()

        again = await take(queue, await hold(queue, session), 3)
        assert text_of(again) == "a1a2"

    @pytest.mark.parametrize("turns", range(6))
    async def test_when_accepting_a_session_is_cancelled_as_one_arrives_then_nothing_is_locked(
        self, rig: Rig, turns: int
    ) -> None:
        """R40; law 6."""
        queue = await open_sessions(rig)
        waiting = start_accept(queue, None, wait_s=rig.long_s)
        await rig.settle()

        await send(queue, "a1")
        await cancel_accept(turns, waiting)
        await rig.settle()

        assert text_of(await take(queue, await hold(queue), 2)) == "a1"

    async def test_when_accepting_a_session_is_cancelled_then_who_waits_beside_it_has_it(
        self, rig: Rig
    ) -> None:
        """R40: a wake-up is not lost with the one that was woken."""
        queue = await open_sessions(rig, "a1")
        session = await hold(queue)
        first = start_accept(queue, choice(rig, "a"), wait_s=rig.long_s)
        await rig.settle()
        second = start_accept(queue, choice(rig, "a"), wait_s=rig.long_s)
        await rig.settle()

        await session.aclose()
        await cancel_accept(0, first)

        assert await rig.ends(second), rig.late(second)
        assert await second is not None

    @pytest.mark.parametrize("turns", range(6))
    async def test_when_a_receive_of_a_session_is_cancelled_then_nothing_is_hidden(
        self, rig: Rig, turns: int
    ) -> None:
        """R40, R4: and the order stays."""
        rig.needs("has_session_choice")
        queue = await open_sessions(rig)
        session = await hold(queue, "a")
        waiting = rig.start(session.receive(max_count=5, wait_s=rig.long_s))
        await rig.settle()

        await send(queue, "a1 a2")
        returned = await cancel_after(turns, waiting)
        await rig.settle()

        rest = await take(queue, session, 3)
        assert text_of([*returned, *rest]) == "a1a2"

    async def test_when_the_gateway_is_closed_then_its_sessions_are_free(self, rig: Rig) -> None:
        """R40: for the next gateway, and with what was in flight."""
        rig.needs("is_durable")
        queue = await open_sessions(rig, "a1 a2")
        await take(queue, await hold(queue), 1)

        await rig.reopen()

        queue = rig.channel(queue.subscription)
        again = await hold(queue, choice(rig, "a"))
        assert text_of(await take(queue, again, 3)) == "a1a2"

    async def test_when_a_session_is_closed_twice_then_its_successor_keeps_the_lock(
        self, rig: Rig
    ) -> None:
        """R40."""
        queue = await open_sessions(rig, "a1")
        closed = await hold(queue)
        await closed.aclose()
        await hold(queue, choice(rig, "a"))

        await closed.aclose()

        assert await accept(queue) is None


def rig_lease(rig: Rig) -> timedelta:
    """A lease of three ticks, whose end a test waits for."""
    return timedelta(seconds=rig.lease_s)


async def cancel_accept(turns: int, accepting: asyncio.Task[SessionPort | None]) -> None:
    """Cancel an accept after so many turns of the loop; close what it returned even so."""
    for _ in range(turns):
        await yield_to_loop()
    accepting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        session = await accepting
        if session is not None:
            await session.aclose()

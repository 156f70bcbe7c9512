"""Contract: a session gives one group to one consumer, in order, and takes back what it hands back.

Where the provider chooses the session (`has_session_choice` is False) it may also end one with
what it gave; the tests then accept it again.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from ...errors import SessionLocked, UnsupportedOperation
from ...message import Delivery
from ...outcome import Settlement
from ..builders import abandon, ack, defer
from .base import ContractTests
from .rig import Rig
from .session_steps import (
    accept,
    choice,
    clients,
    hold,
    is_locked,
    open_sessions,
    send,
    session_gateway,
    settle,
    start_accept,
    take,
    take_on,
    text_of,
)


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
        if rig.capabilities.has_uncounted_abandon:
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

"""Sessions: until when they may be used, and what is in flight: what comes again comes first."""

from __future__ import annotations

import asyncio

import pytest

from gateways._kit.leases import Lease
from gateways._kit.session import HeldMessage, SessionHand, SessionState
from pump.errors import SessionLockLost
from pump.message import Delivery
from pump.testing import VirtualClock
from pump.testing.builders import a_delivery, abandon, ack, defer


def a_state(clock: VirtualClock, *, lasts_s: float = 30.0) -> SessionState:
    return SessionState("orders", "a", Lease(clock.now_s() + lasts_s), clock=clock)


async def test_when_its_lock_has_ended_or_is_lost_then_a_session_may_not_be_used() -> None:
    clock = VirtualClock()
    ended, lost, renewed = a_state(clock), a_state(clock), a_state(clock)
    for each in (ended, lost, renewed):
        each.require()

    error = lost.lose()
    await clock.advance(20)
    renewed.lease.ends_at_s = clock.now_s() + 30
    await clock.advance(10)

    assert (error.queue, error.session) == ("orders", "a")
    assert (ended.is_over, lost.is_over, renewed.is_over) == (True, True, False)
    with pytest.raises(SessionLockLost):
        ended.require()
    assert ended.is_lost


async def test_when_a_session_is_lost_then_that_is_told_once() -> None:
    """Its lock is released then, whichever call noticed."""
    clock = VirtualClock()
    told: list[float] = []
    lease = Lease(clock.now_s() + 30)
    state = SessionState(
        "orders", "a", lease, clock=clock, on_lost=lambda: told.append(clock.now_s())
    )
    await clock.advance(30)

    for _ in range(2):
        with pytest.raises(SessionLockLost):
            state.require()
    state.lose()

    assert told == [clock.now_s()]


async def test_when_a_session_rests_then_it_is_waited_for_no_longer_than_there_is_time() -> None:
    clock = VirtualClock()
    state = a_state(clock, lasts_s=100)
    state.rest(5)
    state.rest(2)
    began_s = clock.now_s()

    short = asyncio.create_task(state.has_rested(began_s + 4))
    long = asyncio.create_task(state.has_rested(began_s + 10))
    await clock.advance(4)
    answered = (short.done(), long.done())
    await clock.advance(1)

    assert answered == (True, False)
    assert (await short, await long) == (False, True)
    assert await state.has_rested(began_s)


async def test_when_the_lock_ends_while_a_session_rests_then_it_is_lost() -> None:
    clock = VirtualClock()
    state = a_state(clock, lasts_s=3)
    state.rest(5)

    resting = asyncio.create_task(state.has_rested(clock.now_s() + 10))
    await clock.advance(5)

    with pytest.raises(SessionLockLost):
        await resting


Hand = SessionHand[HeldMessage]


def hand_with(*places: int) -> Hand:
    hand: Hand = SessionHand()
    for place in places:
        hand.add(HeldMessage(place=place))
    return hand


def give_out(hand: Hand, *receipts: str) -> list[Delivery]:
    for message, receipt in zip(hand.ready(), receipts, strict=False):
        hand.give_out(message, receipt)
    return [a_delivery(receipt=receipt) for receipt in receipts]


def places(messages: list[HeldMessage]) -> list[int]:
    return [each.place for each in messages]


def never(_: HeldMessage) -> bool:
    return False


def test_when_messages_are_given_out_then_each_is_out_once_and_in_order() -> None:
    hand = hand_with(1, 2, 3)

    give_out(hand, "a", "b")

    assert places(hand.ready()) == [3]
    had_more = hand.has_ready
    give_out(hand, "c")
    assert (had_more, hand.has_ready, len(hand)) == (True, False, 3)


def test_when_one_comes_late_or_twice_then_the_order_holds() -> None:
    """What an abandoned pull brings may come after what was pulled later."""
    hand = hand_with(2, 5, 3, 2)

    assert places(hand.ready()) == [2, 3, 5]


def test_when_some_come_again_then_they_come_before_their_successors() -> None:
    hand = hand_with(1, 2, 3)
    head, second = give_out(hand, "a", "b")

    found = hand.sort([defer(head), abandon(second)], queue="orders", is_last=never)

    assert [each.place for _, each in found.again] == [1, 2]
    assert (found.refusals, found.done, found.last) == ([], [], [])
    assert places(hand.ready()) == [1, 2, 3]
    assert hand.find(head) is None


def test_when_one_is_acked_then_it_is_taken_and_then_gone() -> None:
    hand = hand_with(1, 2)
    first, _ = give_out(hand, "a", "b")

    [(delivery, message)] = hand.sort([ack(first)], queue="orders", is_last=never).done
    while_taken = hand.find(first)
    hand.drop(message)

    assert delivery is first
    assert while_taken is None
    assert hand.find(first) is None
    assert message not in hand
    assert places(list(hand)) == [2]


def test_when_one_is_deferred_at_its_last_attempt_then_it_is_to_be_moved_away() -> None:
    hand = hand_with(1)
    [delivery] = give_out(hand, "a")

    found = hand.sort([defer(delivery)], queue="orders", is_last=lambda _: True)

    assert [message.place for _, message in found.last] == [1]
    assert hand.find(delivery) is None
    assert not hand.has_ready


def test_when_one_is_abandoned_at_its_last_attempt_then_it_comes_again() -> None:
    """It was not tried."""
    hand = hand_with(1)
    [delivery] = give_out(hand, "a")

    found = hand.sort([abandon(delivery)], queue="orders", is_last=lambda _: True)

    assert [message.place for _, message in found.again] == [1]


def test_when_a_delivery_is_settled_twice_or_was_never_out_then_it_is_refused() -> None:
    """Law 1, R6."""
    hand = hand_with(1, 2)
    [delivery] = give_out(hand, "a")

    found = hand.sort(
        [defer(delivery), ack(delivery), ack(a_delivery(receipt="x"))],
        queue="orders",
        is_last=never,
    )

    assert [each.is_final for each in found.refusals] == [True, True]
    assert found.done == []

"""The gate in front of the connections: its maximum, its reserve, its line, its end."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future as ThreadFuture
from contextlib import AsyncExitStack

import pytest
from hypothesis import given, strategies as st

from gateways._aws.sdk_transport import Connections
from pump.clock import yield_to_loop
from pump.errors import ConnectionFailed, PoolExhausted
from pump.testing.virtual_clock import VirtualClock

PATIENCE_S = 30.0


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def _gate(clock: VirtualClock, limit: int = 3, long_poll_limit: int = 2) -> Connections:
    return Connections(limit, long_poll_limit=long_poll_limit, patience_s=PATIENCE_S, clock=clock)


class _Call:
    """A call that holds a connection until it is told to end."""

    def __init__(self, gate: Connections, name: str = "orders", *, poll: bool = False) -> None:
        self.name = name
        self.started = asyncio.Event()
        self.end = asyncio.Event()
        self.task = asyncio.create_task(self._run(gate, poll), name=name)

    async def _run(self, gate: Connections, poll: bool) -> str:
        async with gate.hold(self.name, is_long_poll=poll):
            self.started.set()
            await self.end.wait()
        return self.name


def _running(calls: list[_Call]) -> list[str]:
    return [call.name for call in calls if call.started.is_set() and not call.task.done()]


async def _finish(calls: list[_Call]) -> None:
    for call in calls:
        call.end.set()
    await asyncio.gather(*(call.task for call in calls), return_exceptions=True)


async def test_when_all_connections_are_held_then_the_next_call_waits_its_turn(
    clock: VirtualClock,
) -> None:
    """R54: the maximum is respected, and the line is served in order."""
    gate = _gate(clock)
    calls = [_Call(gate, name) for name in "abcde"]
    await clock.settle()
    assert _running(calls) == ["a", "b", "c"]

    calls[1].end.set()
    await clock.settle()

    assert _running(calls) == ["a", "c", "d"]
    await _finish(calls)
    assert gate.in_use == 0


async def test_when_long_polls_hold_all_they_may_then_another_call_still_gets_through(
    clock: VirtualClock,
) -> None:
    """R54: an ack never waits for a poll to end."""
    gate = _gate(clock)
    polls = [_Call(gate, name, poll=True) for name in "pqr"]
    await clock.settle()
    assert _running(polls) == ["p", "q"]

    ack = _Call(gate, "ack")
    await clock.settle()

    assert ack.started.is_set()
    await _finish([*polls, ack])
    assert gate.in_use == 0


async def test_when_calls_and_polls_wait_then_calls_go_first(clock: VirtualClock) -> None:
    """R54."""
    gate = _gate(clock, limit=2, long_poll_limit=1)
    calls = [_Call(gate, "a"), _Call(gate, "b")]
    await clock.settle()
    waiting = [_Call(gate, "poll", poll=True), _Call(gate, "ack")]
    await clock.settle()

    calls[0].end.set()
    await clock.settle()

    assert _running(waiting) == ["ack"]
    await _finish(calls + waiting)
    assert gate.in_use == 0


async def test_when_no_connection_comes_free_in_time_then_the_pool_is_exhausted(
    clock: VirtualClock,
) -> None:
    """R54: graceful when exhausted: an error of its own, and nothing else breaks."""
    gate = _gate(clock)
    calls = [_Call(gate, name) for name in "abcd"]
    await clock.advance(PATIENCE_S - 1)
    assert not calls[3].task.done()

    await clock.advance(1)

    with pytest.raises(PoolExhausted) as caught:
        await calls[3].task
    assert (caught.value.target, caught.value.limit) == ("d", 3)
    await _finish(calls)
    assert gate.in_use == 0
    await _finish([_Call(gate, "later")])


async def test_when_a_poll_waits_in_line_then_its_turn_comes_however_long_that_takes(
    clock: VirtualClock,
) -> None:
    """R54: more subscriptions than connections is slow, and no error."""
    gate = _gate(clock, limit=2, long_poll_limit=1)
    first, second = _Call(gate, "a", poll=True), _Call(gate, "b", poll=True)
    await clock.advance(10 * PATIENCE_S)
    assert not second.task.done()

    first.end.set()
    await clock.settle()

    assert _running([second]) == ["b"]
    await _finish([second])
    assert gate.in_use == 0


async def test_when_one_in_line_is_cancelled_then_the_next_takes_its_place(
    clock: VirtualClock,
) -> None:
    """R53: no connection is lost on the way."""
    gate = _gate(clock, limit=2, long_poll_limit=1)
    calls = [_Call(gate, name) for name in "abcd"]
    await clock.settle()

    # The connection is handed to "c" and "c" is cancelled before it can take it.
    calls[0].end.set()
    while not calls[0].task.done():
        await yield_to_loop()
    calls[2].task.cancel()
    await clock.settle()

    assert calls[2].task.cancelled()
    assert _running(calls) == ["b", "d"]
    await _finish(calls)
    assert gate.in_use == 0


async def test_when_a_thread_still_works_then_its_connection_is_not_free(
    clock: VirtualClock,
) -> None:
    """R54: a cancelled boto3 call goes on in its thread."""
    gate = _gate(clock)
    work: ThreadFuture[None] = ThreadFuture()
    async with gate.hold("orders") as held:
        held.keep_until(work)
    assert gate.in_use == 1

    await asyncio.to_thread(work.set_result, None)
    await clock.settle()

    assert gate.in_use == 0


async def test_when_the_gate_closes_then_polls_and_waiters_fail_and_calls_finish(
    clock: VirtualClock,
) -> None:
    gate = _gate(clock)
    poll, call, other = _Call(gate, "poll", poll=True), _Call(gate, "call"), _Call(gate, "other")
    waiter = _Call(gate, "waiter")
    await clock.settle()

    closing = asyncio.create_task(gate.aclose(grace_s=5))
    await clock.settle()
    call.end.set()
    other.end.set()
    await closing

    assert [await call.task, await other.task] == ["call", "other"]
    for failed in (poll, waiter):
        with pytest.raises(ConnectionFailed, match="the gateway is closed"):
            await failed.task
    with pytest.raises(ConnectionFailed, match="the gateway is closed"):
        await _Call(gate, "late").task
    assert gate.in_use == 0


async def test_when_a_turn_comes_just_before_the_gate_closes_then_it_is_not_taken(
    clock: VirtualClock,
) -> None:
    """Closing waits for those who hold a connection, and this one does not yet."""
    gate = _gate(clock, limit=1, long_poll_limit=1)
    async with gate.hold("first"):
        late = _Call(gate, "late")
        await clock.settle()
        late.end.set()

    await gate.aclose(grace_s=5)

    with pytest.raises(ConnectionFailed, match="the gateway is closed"):
        await late.task
    assert not late.started.is_set()
    assert gate.in_use == 0


async def test_when_the_grace_is_over_then_the_rest_fails_as_closed(clock: VirtualClock) -> None:
    gate = _gate(clock)
    call = _Call(gate, "slow")
    await clock.settle()

    await gate.aclose(grace_s=0.01)

    with pytest.raises(ConnectionFailed, match="slow"):
        await call.task
    assert not call.task.cancelled()


async def test_when_a_caller_is_cancelled_while_the_gate_closes_then_it_is_cancelled(
    clock: VirtualClock,
) -> None:
    """Law 6: cancellation is never swallowed, not even by our own."""
    gate = _gate(clock)
    poll = _Call(gate, "poll", poll=True)
    await clock.settle()

    closing = asyncio.create_task(gate.aclose(grace_s=1))
    poll.task.cancel()
    await closing

    with pytest.raises(asyncio.CancelledError):
        await poll.task
    assert poll.task.cancelled()


@given(
    st.lists(
        st.tuples(st.sampled_from(["call", "poll", "end", "cancel", "time"]), st.integers(0, 9)),
        max_size=60,
    )
)
async def test_when_calls_come_end_and_are_cancelled_then_no_connection_is_lost(
    steps: list[tuple[str, int]],
) -> None:
    """R53, R54: in any order, within the limits, and all free at the end."""
    clock = VirtualClock()
    gate = _gate(clock, limit=4, long_poll_limit=2)
    calls: list[_Call] = []

    async with AsyncExitStack() as stack:
        stack.push_async_callback(_finish, calls)
        for action, number in steps:
            await _step(clock, gate, calls, action, number)
            polls = [call for call in calls if call.name == "poll"]
            assert gate.in_use == len(_running(calls)) <= 4
            assert len(_running(polls)) <= 2

    await clock.settle()
    assert gate.in_use == 0


async def _step(
    clock: VirtualClock, gate: Connections, calls: list[_Call], action: str, number: int
) -> None:
    if action in ("call", "poll"):
        calls.append(_Call(gate, action, poll=action == "poll"))
    elif action == "time":
        await clock.advance(number * 10)
    elif calls:
        chosen = calls[number % len(calls)]
        if action == "end":
            chosen.end.set()
        else:
            chosen.task.cancel()
        # Sometimes the next step comes before this one has been noticed.
        if number % 2:
            return
    await clock.settle()

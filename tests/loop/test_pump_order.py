"""Order: groups one at a time and in order, a failing head blocks only its own (R37, R38, T7)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from datetime import timedelta

import pytest
from hypothesis import given, settings, strategies as st

from pump import Backoff, DeferMessage, RejectMessage, hybrid
from pump.clock import yield_to_loop
from pump.errors import ConnectionFailed
from pump.events import BestEffortOrderEvent
from pump.subscription import MakeChannels, QueueSpec

from ..core.rig import Gate, Rig, Work


async def test_when_messages_share_a_group_then_they_run_one_at_a_time_and_in_order() -> None:
    """R38."""
    gate = Gate()
    async with Rig(gate, concurrency=10) as rig:
        await rig.send(1, 2, 3, group="a")
        await rig.send(11, 12, 13, group="b")
        await rig.start()
        assert rig.started == [1, 11]

        gate.open(1)
        await rig.clock.settle()
        assert rig.started == [1, 11, 2]
        gate.open()
        await rig.clock.settle()

        assert [n for n in rig.ended if n < 10] == [1, 2, 3]
        assert [n for n in rig.ended if n > 10] == [11, 12, 13]


async def test_when_a_head_fails_then_its_group_waits_for_it_and_the_other_goes_on() -> None:
    """T7: a retried head blocks its successors."""

    async def fail_once(work: Work) -> None:
        if work.n == 1 and rig.attempts[1] == 1:
            raise DeferMessage(timedelta(seconds=30))

    async with Rig(fail_once) as rig:
        await rig.send(1, 2, 3, group="a")
        await rig.send(11, 12, group="b")
        await rig.start()
        await rig.clock.advance(29)
        assert sorted(rig.started) == [1, 11, 12]

        await rig.clock.advance(2)

        assert [n for n in rig.started if n < 10] == [1, 1, 2, 3]
        assert (rig.attempts[2], rig.attempts[3]) == (1, 1), "handed back uncounted"


async def test_when_a_head_is_dead_lettered_then_its_successors_are_free() -> None:
    """T7."""

    async def reject_the_head(work: Work) -> None:
        if work.n == 1:
            raise RejectMessage("no")

    async with Rig(reject_the_head) as rig:
        await rig.send(1, 2, 3, group="a")
        await rig.start()

        assert rig.started == [1, 2, 3]
        assert await rig.total("dead") == 1


async def test_when_a_heads_copy_cannot_be_routed_then_its_successors_wait_for_it() -> None:
    """T1 KEEP with T7: a kept head has not gone."""

    async def reject_the_head(work: Work) -> None:
        if work.n == 1:
            raise RejectMessage("no")

    backoff = Backoff(initial=timedelta(seconds=10), jitter=0)
    async with Rig(
        reject_the_head, on_routing_failure="keep", failure=hybrid(3, backoff=backoff)
    ) as rig:
        await rig.send(1, 2, group="a")
        rig.gateway.fail("send", ConnectionFailed("dead", "away"), times=1)
        await rig.start()
        assert rig.started == [1]

        await rig.clock.advance(11)

        assert rig.started == [1, 1, 2]
        assert await rig.total("dead") == 1


async def test_when_a_heads_lease_is_lost_then_its_successors_are_handed_back_after_it() -> None:
    """Law 3 with R38."""
    gate = Gate()
    async with Rig(gate, renew=False) as rig:
        await rig.send(1, 2, group="a")
        await rig.start()
        await rig.clock.advance(31)
        assert rig.cancelled == [1]
        gate.open()
        await rig.clock.advance(31)

        assert rig.started == [1, 1, 2]
        assert rig.ended == [1, 2]


async def test_when_order_is_guaranteed_then_ungrouped_messages_run_one_at_a_time() -> None:
    """R37: strict order across retries."""

    async def fail_once(work: Work) -> None:
        if work.n == 2 and rig.attempts[2] < 3:
            raise ValueError("boom")

    async with Rig(fail_once, ordering_guarantee=True, concurrency=10) as rig:
        await rig.send(1, 2, 3, 4)
        await rig.start()
        await rig.clock.advance(60)

        assert rig.started == [1, 2, 2, 2, 3, 4]
        assert rig.most_at_once == 1


async def test_when_the_broker_hands_out_more_at_once_then_the_guarantee_still_holds() -> None:
    """R37: order does not rest on the broker's strictness alone."""
    gate = Gate()
    async with Rig(gate, ordering_guarantee=True, make_channels="assume", concurrency=10) as rig:
        # Settings of its own, so that the queue is no longer a strict one.
        loose = QueueSpec(name="orders", lease=timedelta(seconds=30))
        await rig.gateway.admin().ensure(loose, MakeChannels.CREATE)
        await rig.send(1, 2, 3)
        await rig.start()
        assert (await rig.depth()).in_flight == 3
        assert rig.started == [1]

        gate.open()
        await rig.clock.settle()

        assert rig.ended == [1, 2, 3]
        assert rig.most_at_once == 1


async def test_when_order_is_not_guaranteed_then_observers_are_told_once_at_the_start() -> None:
    """R37."""
    async with Rig() as rig:
        await rig.start()
        await rig.send(1, 2)
        await rig.clock.settle()

        [event] = rig.told(BestEffortOrderEvent)
        assert (event.queue, event.subscription) == ("orders", "orders")
        assert "ordering_guarantee" in event.detail


async def test_when_order_is_guaranteed_then_no_such_event_is_told() -> None:
    """R37."""
    async with Rig(ordering_guarantee=True) as rig:
        await rig.start()

        assert rig.told(BestEffortOrderEvent) == []


@pytest.mark.parametrize("has_guarantee", [False, True])
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), max_size=20))
@settings(max_examples=25)
def test_when_handlers_fail_at_random_then_each_groups_messages_still_end_in_order(
    has_guarantee: bool, plan: list[tuple[str, int]]
) -> None:
    """R37, R38: `plan` says each message's group, and how often it fails."""

    async def behave(work: Work) -> None:
        group, failure_count = plan[work.n]
        assert not running[group], "two of a group at once"
        running[group] += 1
        await yield_to_loop()
        running[group] -= 1
        if rig.attempts[work.n] <= failure_count:
            raise ValueError("boom")

    async def scenario() -> None:
        async with rig:
            for number, (group, _) in enumerate(plan):
                await rig.send(number, group=group)
            await rig.start()
            await rig.clock.advance(3_600)

            assert sorted(rig.ended) == list(range(len(plan)))
            for group in "abc":
                ended = [n for n in rig.ended if plan[n][0] == group]
                assert ended == sorted(ended)

    running: defaultdict[str, int] = defaultdict(int)
    rig = Rig(behave, concurrency=4, ordering_guarantee=has_guarantee)
    asyncio.run(scenario())

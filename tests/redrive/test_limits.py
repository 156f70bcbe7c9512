"""What a redrive meets, and what it does not: limits of brokers, stops, others that take."""

from __future__ import annotations

from pathlib import Path

import pytest

from pump.errors import (
    QueueNotFound,
    Throttled,
)
from pump.testing.virtual_clock import VirtualClock

from .rig import (
    DEAD,
    TARGET,
    Redrive,
    Rig,
    a_dead_letter,
    a_plan,
    through_time,
)

ORDERS = [a_dead_letter(n) for n in range(8)]
OTHERS = [a_dead_letter(n, type="Payment") for n in range(8, 12)]


async def a_rig(clock: VirtualClock) -> Rig:
    rig = Rig(clock)
    await rig.fill(*ORDERS, *OTHERS)
    return rig


async def test_when_the_broker_gives_no_more_while_many_are_held_then_it_ends_and_says_so(
    clock: VirtualClock, folder: Path
) -> None:
    """R78: 120,000 in flight are the most that SQS allows; asking for ever would not help."""
    rig = Rig(clock, receive_batch=4)
    await rig.fill(*OTHERS, *ORDERS)

    async def over_limit() -> None:
        if await rig.in_flight(DEAD) >= 4:
            raise Throttled(DEAD)

    rig.before["receive"] = over_limit
    redrive = Redrive(rig, folder)

    counts = await through_time(clock, redrive.run())

    assert redrive.mover is not None
    assert redrive.mover.is_full
    assert (counts.sent, counts.held, redrive.left) == (0, 4, 8)
    assert await rig.ids_in(DEAD) == [each.id for each in [*ORDERS, *OTHERS]]


async def test_when_a_snapshot_meets_that_limit_then_it_works_on_what_it_saw(
    clock: VirtualClock, folder: Path
) -> None:
    """R78: without a peek, a look holds what it saw."""
    rig = Rig(clock, receive_batch=4, has_peek=False)
    await rig.fill(*ORDERS, *OTHERS)

    async def over_limit() -> None:
        if await rig.in_flight(DEAD) >= 8:
            raise Throttled(DEAD)

    rig.before["receive"] = over_limit
    redrive = Redrive(rig, folder)

    counts = await through_time(clock, redrive.run())

    assert redrive.prepared is not None
    assert (redrive.prepared.seen_count, redrive.prepared.hidden_count) == (8, 4)
    assert (counts.sent, counts.removed) == (8, 8)
    assert await rig.ids_in(DEAD) == [each.id for each in OTHERS]


async def test_when_somebody_else_takes_a_selected_message_then_the_end_does_not_wait_for_ever(
    clock: VirtualClock, folder: Path
) -> None:
    """R78: what is not met is counted as left."""
    rig = await a_rig(clock)

    async def purge() -> None:
        if rig.calls["ack"] == 1:
            await rig.admin().purge(DEAD)

    rig.after["ack"] = purge
    redrive = Redrive(rig, folder)

    counts = await through_time(clock, redrive.run())

    assert (counts.sent, redrive.left) == (4, 4)


async def test_when_it_is_stopped_then_the_batch_in_hand_is_finished_and_the_rest_handed_back(
    clock: VirtualClock, folder: Path
) -> None:
    """R78: Ctrl-C, and the same command goes on."""
    rig = await a_rig(clock)
    first = Redrive(rig, folder, batch=100, rate=2)

    async def stop() -> None:
        first.stopping.set()

    rig.before["send"] = stop
    counts = await through_time(clock, first.run())
    assert (counts.sent, counts.removed, first.left) == (2, 2, 6)
    assert await rig.in_flight(DEAD) == 0

    second = Redrive(rig.next_life(), folder)
    counts = await through_time(clock, second.run())

    assert second.prepared is not None
    assert (second.prepared.is_resumed, second.prepared.picture.count) == (True, 6)
    assert (counts.sent, second.left) == (6, 0)
    assert await rig.ids_in(TARGET) == [each.id for each in ORDERS]


@pytest.mark.parametrize("queue", [DEAD, TARGET])
async def test_when_a_queue_is_missing_then_nothing_is_touched(
    clock: VirtualClock, folder: Path, queue: str
) -> None:
    """R78: a wrong name is said before the first look."""
    rig = await a_rig(clock)
    plan = a_plan(**{"queue" if queue == DEAD else "target": "nowhere"})

    with pytest.raises(QueueNotFound, match="nowhere"):
        await through_time(clock, Redrive(rig, folder, plan).run())

    assert not rig.calls


async def test_when_two_copies_of_one_dead_letter_are_there_then_both_are_moved(
    clock: VirtualClock, folder: Path
) -> None:
    """R78: the broker's ids tell them apart: each is sent and removed, and none stays behind."""
    rig = Rig(clock)
    rig.forgets = True
    await rig.fill(*ORDERS[:2], *ORDERS[:2])

    counts = await through_time(clock, Redrive(rig, folder).run())

    assert (counts.sent, counts.removed) == (4, 4)
    assert await rig.ids_in(TARGET) == ["m-0", "m-0", "m-1", "m-1"]
    assert await rig.ids_in(DEAD) == []

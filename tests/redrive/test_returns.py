"""Dead letters that come back as they were: a broker that moves a message writes nothing on it.

SQS moves a message after `maxReceiveCount` with the headers that it has, those of an earlier
rejection included. Only the broker's own id tells it from the dead letter that was sent before.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from pump.message import Message
from pump.outcome import ACK, Settlement
from pump.redrive.rows import redriven
from pump.subscription import Subscription
from pump.testing.builders import a_delivery
from pump.testing.virtual_clock import VirtualClock

from .rig import DEAD, TARGET, Killed, Redrive, Rig, a_dead_letter, through_time

ORDERS = [a_dead_letter(n) for n in range(8)]


async def a_rig(clock: VirtualClock, *, has_peek: bool = False) -> Rig:
    rig = Rig(clock, has_peek=has_peek, receive_batch=4)
    await rig.fill(*ORDERS)
    return rig


async def come_back(rig: Rig, letter: Message) -> None:
    """The target's consumer died with it, and the broker has moved it."""
    await rig.memory.producer(DEAD).send([letter])


@pytest.mark.parametrize("has_peek", [False, True])
async def test_when_a_message_comes_back_while_others_are_sent_then_all_are_sent_once(
    clock: VirtualClock, folder: Path, has_peek: bool
) -> None:
    """R78: it is another dead letter, which nobody has selected; else it would go round, and take
    the place of those that wait. A peek shows no broker's ids, as Service Bus's, and then the
    number of copies tells.
    """
    rig = await a_rig(clock, has_peek=has_peek)
    rig.forgets = True
    lease = timedelta(seconds=10)
    stranger = rig.memory.consumer(Subscription(queue=DEAD, request=Message, lease=lease))

    async def fail_at_once() -> None:
        if rig.calls["send"] == 1:
            # The others come when this lease ends; what has come back comes first.
            assert len(await stranger.receive(max_count=4, wait_s=0)) == 4
        await come_back(rig, ORDERS[0])

    rig.after["send"] = fail_at_once
    redrive = Redrive(rig, folder)

    counts = await through_time(clock, redrive.run())

    assert (counts.sent, counts.removed, redrive.left) == (8, 8, 0)
    assert await rig.ids_in(TARGET) == [each.id for each in ORDERS]
    assert await rig.ids_in(DEAD) == ["m-0", "m-0"]


async def test_when_a_message_that_came_back_is_redriven_then_it_is_not_taken_for_the_first_one(
    clock: VirtualClock, folder: Path
) -> None:
    """R78: a target that de-duplicates would take it and drop it, and it would be lost."""
    rig = await a_rig(clock)
    await through_time(clock, Redrive(rig, folder).run())
    consumer = rig.memory.consumer(Subscription(queue=TARGET, request=Message))
    received = await consumer.receive(max_count=10, wait_s=0)
    await consumer.settle([Settlement(each, ACK) for each in received])
    await come_back(rig, ORDERS[0])

    counts = await through_time(clock, Redrive(rig.next_life(), folder).run())

    assert (counts.sent, counts.removed) == (1, 1)
    assert await rig.ids_in(TARGET) == ["m-0"]
    assert await rig.ids_in(DEAD) == []


def test_when_the_broker_has_an_id_of_its_own_then_it_tells_two_redrives_apart() -> None:
    """R78: and one dead letter has one de-duplication id, however often it is delivered."""
    one, again, two = (
        replace(a_delivery(ORDERS[0]), broker_id=broker_id) for broker_id in ("a", "a", "b")
    )

    assert redriven(one, TARGET).deduplication_id == redriven(again, TARGET).deduplication_id
    assert redriven(one, TARGET).deduplication_id != redriven(two, TARGET).deduplication_id


async def test_when_it_comes_back_between_two_lives_of_a_run_then_it_waits_for_the_next_run(
    clock: VirtualClock, folder: Path
) -> None:
    """R78: the record tells which of two that look alike was sent."""
    rig = await a_rig(clock, has_peek=True)
    rig.forgets = True
    rig.kill_at("after", "ack")
    with pytest.raises(Killed):
        await through_time(clock, Redrive(rig, folder).run())
    await come_back(rig, ORDERS[0])

    again = Redrive(rig.next_life(), folder)
    await through_time(clock, again.run())

    assert again.left == 0
    assert await rig.ids_in(TARGET) == [each.id for each in ORDERS]
    assert await rig.ids_in(DEAD) == ["m-0"]


async def test_when_a_dead_letter_is_there_twice_then_both_copies_are_sent(
    clock: VirtualClock, folder: Path
) -> None:
    """R78: a peek tells them apart by nothing but their number."""
    rig = await a_rig(clock, has_peek=True)
    rig.forgets = True
    await come_back(rig, ORDERS[0])

    counts = await through_time(clock, Redrive(rig, folder).run())

    assert (counts.sent, counts.removed) == (9, 9)
    assert await rig.ids_in(DEAD) == []

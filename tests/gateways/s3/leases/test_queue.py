"""A queue of leases: delays, redrive, purging, cancellation and closing."""

from __future__ import annotations

import asyncio
import gc

import pytest

from gateways.s3.layout import MAX_BODY_BYTES, S3QueueSettings
from gateways.s3.leases.codec import BatchId, MessageId, batch_key, lease_key
from gateways.s3.store.objects import List, Put, Remove, Reply, Request
from pump.clock import yield_to_loop
from pump.errors import AccessDenied, ConnectionFailed, MessageTooLarge
from pump.message import Message
from pump.outcome import ABANDON, ACK, Defer, Settlement
from pump.testing.builders import a_message
from tests.gateways.s3.leases.worlds import (
    KEYS,
    LOST,
    OVER_S,
    World,
    ack_all,
    bodies,
    take,
    take_all,
)


def some(text: str) -> list[Message]:
    return list(map(a_message, text))


# Delays.


async def test_when_a_batch_has_delayed_messages_then_others_pass_them(world: World) -> None:
    """R8: also for a process that only reads them."""
    sender, receiver = world.process(turns=1), world.process()
    await asyncio.gather(sender.send(some("L"), delay_s=20.0), sender.send(some("E"), delay_s=0.0))

    early = await take_all(receiver)
    waiting = asyncio.create_task(take(receiver, wait_s=60.0))
    await world.clock.advance(18.0)
    was_waiting = not waiting.done()
    await world.clock.advance(5.0)

    assert bodies(early) == "E"
    assert was_waiting
    assert bodies(await waiting) == "L"


# The end of a message.


async def test_when_the_last_lease_runs_out_then_its_process_buries_it_by_itself(
    world: World,
) -> None:
    """R20, T5: nobody has to receive again."""
    queue = world.process(max_receive_count=1, dead_letter_queue="dead")
    await queue.send(some("A"), delay_s=0.0)
    await take(queue)

    await world.clock.advance(OVER_S)

    [(target, copy)] = world.moved
    assert (target, copy.body) == ("dead", b"A")
    assert copy.deduplication_id == "orders/0000000000000001.000"
    assert await take(world.process()) == []


async def test_when_a_process_died_with_the_last_delivery_then_another_buries_it(
    world: World,
) -> None:
    """R20."""
    dying, other = (world.process(max_receive_count=2, dead_letter_queue="dead") for _ in range(2))
    await dying.send(some("A"), delay_s=0.0)
    [held] = await take(dying)
    await dying.settle([Settlement(held, Defer(0.0))])
    await take(dying)
    await dying.aclose()
    await world.clock.advance(OVER_S)

    assert await take(other) == []
    assert [copy.body for _, copy in world.moved] == [b"A"]


async def test_when_the_dead_letter_queue_fails_then_the_message_stays_and_is_moved_later(
    world: World,
) -> None:
    """R20, law 2: nothing is done before its copy is durable."""
    queue = world.process(max_receive_count=1, dead_letter_queue="dead")
    await queue.send(some("A"), delay_s=0.0)
    [held] = await take(queue)
    world.move_fails = 2

    assert await queue.settle([Settlement(held, Defer(0.0))]) == []
    assert world.moved == []
    await world.clock.advance(10.0)

    assert [copy.body for _, copy in world.moved] == [b"A"]
    assert await take(queue) == []


async def test_when_abandoned_at_its_last_delivery_then_it_is_delivered_again(
    world: World,
) -> None:
    """T5."""
    queue = world.process(max_receive_count=1, dead_letter_queue="dead")
    await queue.send(some("A"), delay_s=0.0)
    [held] = await take(queue)

    await queue.settle([Settlement(held, ABANDON)])

    [again] = await take(queue)
    assert again.attempt == 1
    assert world.moved == []


# Purging.


async def test_when_purged_by_another_process_then_an_owner_finds_its_lease_gone(
    world: World,
) -> None:
    """R5, T8."""
    owner, other = world.process(), world.process()
    await owner.send(some("ABC"), delay_s=0.0)
    [held] = await take(owner)

    count = await other.purge()
    [refusal] = await owner.settle([Settlement(held, ACK)])

    assert count == 3
    assert refusal.is_final
    assert world.keys("messages/") == world.keys("pending/") == []
    assert await take(owner, 10) == await take(other, 10) == []
    await owner.send(some("D"), delay_s=0.0)
    assert bodies(await take(other)) == "D"


async def test_when_purged_as_a_claim_is_under_way_then_nothing_is_delivered(world: World) -> None:
    """R5, T8: a claim that cannot be confirmed leaves nothing behind."""
    owner, other = world.process(), world.process()
    await owner.send(some("A"), delay_s=0.0)
    may_claim = asyncio.Event()
    world.stores[0].gate = lambda request: may_claim if "lease.json" in str(request) else None
    taking = asyncio.create_task(take(owner))
    await world.clock.settle()
    await other.purge()
    may_claim.set()

    assert await taking == []
    assert world.keys("pending/") == []


async def test_when_a_purge_is_not_answered_then_it_says_so(world: World) -> None:
    """R51."""
    queue = world.process()
    await queue.send(some("A"), delay_s=0.0)
    world.stores[0].faults.append((lambda request: isinstance(request, Remove), LOST))

    purging = asyncio.create_task(queue.purge())
    await world.clock.advance(1.0)
    with pytest.raises(ConnectionFailed, match="purge it again"):
        await purging

    assert bodies(await take(queue)) == "A"


# Looking.


async def test_when_looked_at_then_each_message_counts_as_what_it_is(world: World) -> None:
    """By a process that has received nothing itself."""
    queue, other = world.process(), world.process()
    await queue.send(some("ABCD"), delay_s=0.0)
    await queue.send(some("E"), delay_s=60.0)
    done, held, deferred = await take(queue, 3)
    await queue.settle([Settlement(done, ACK), Settlement(deferred, Defer(60.0))])
    await world.clock.advance(10.0)

    stats, seen = await other.stats(), await other.peek(max_count=10)

    assert (stats.visible, stats.in_flight, stats.delayed) == (1, 1, 2)
    assert stats.oldest_age_s is not None
    assert 9.0 <= stats.oldest_age_s <= 11.0
    assert [each.body for each in seen] == [b"D"]
    assert held.attempt == 1


# Cancelling, failing, closing.


@pytest.mark.parametrize("turns", range(12))
async def test_when_a_receive_is_cancelled_then_everything_is_to_be_had_at_once(
    world: World, turns: int
) -> None:
    """R4, law 6: uncounted, wherever the cancellation falls."""
    queue, other = world.process(turns=1), world.process()
    await other.send(some("ABC"), delay_s=0.0)
    taking = asyncio.create_task(take(queue, 3, wait_s=5.0))
    for _ in range(turns):
        await yield_to_loop()
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    await world.clock.settle()

    again = await take(queue, 3)

    assert bodies(again) == "ABC"
    assert {each.attempt for each in again} == {1}


async def test_when_a_claim_cannot_be_confirmed_then_it_is_handed_back(world: World) -> None:
    """R51, T8: and the receive raises what the store did not say."""
    queue, other = world.process(), world.process()
    await queue.send(some("A"), delay_s=0.0)

    def is_confirmation(request: Request) -> bool:
        return "has_body=False" in str(request)

    world.stores[0].faults += [(is_confirmation, LOST)] * 20
    taking = asyncio.create_task(take(queue))
    await world.clock.advance(5.0)
    with pytest.raises(ConnectionFailed):
        await taking
    world.stores[0].faults.clear()

    [again] = await take(other)
    assert again.attempt == 1


async def test_when_nothing_answers_a_waiting_receive_then_it_raises(world: World) -> None:
    """R51: the pump backs off by itself."""
    queue = world.process()
    assert await take(queue) == []
    waiting = asyncio.create_task(take(queue, wait_s=30.0))
    await world.clock.settle()
    world.stores[0].faults += [(lambda request: isinstance(request, List), LOST)] * 100

    await world.clock.advance(10.0)

    with pytest.raises(ConnectionFailed):
        await waiting


async def test_when_closed_then_waiting_receives_return_empty(world: World) -> None:
    """R4."""
    queue = world.process()
    waiting = [asyncio.create_task(take(queue, wait_s=30.0)) for _ in range(3)]
    await world.clock.settle()

    await queue.aclose()

    assert [await each for each in waiting] == [[], [], []]


async def test_when_a_body_is_too_large_then_nothing_is_sent(world: World) -> None:
    """R58."""
    queue = world.process()

    with pytest.raises(MessageTooLarge):
        await queue.send([a_message("A"), a_message(b"x" * (MAX_BODY_BYTES + 1))], delay_s=0.0)

    assert world.billed == 0


async def test_when_bodies_are_large_then_a_batch_is_closed_by_their_size(world: World) -> None:
    """R58: one of the greatest size still fits."""
    queue = world.process()
    sent = [a_message(b"x" * size) for size in (MAX_BODY_BYTES, 600_000, 600_000, 10)]

    await queue.send(sent, delay_s=0.0)

    assert len(world.keys("messages/")) == 3
    assert [each.message for each in await take_all(queue)] == sent


async def test_when_memory_is_short_then_bodies_are_read_again(world: World) -> None:
    """R50: a queue that is larger than what a process keeps of it."""
    queue = world.process(settings=S3QueueSettings(cache_bytes=50_000))
    assert await take(queue) == []
    for number in range(30):
        await queue.send([a_message(f"{number:02}" + "x" * 4_000)], delay_s=0.0)

    received = await take_all(queue, 4)
    await queue.settle([Settlement(each, Defer(0.0)) for each in received])
    again = await take_all(queue, 4)

    for deliveries in (received, again):
        assert [each.message.body[:2] for each in deliveries] == [b"%02d" % n for n in range(30)]


async def test_when_a_lease_cannot_be_read_then_only_its_message_is_held_up(world: World) -> None:
    """R51: a person has to look at it; the others go on."""
    sender, queue = world.process(), world.process()
    await sender.send(some("AB"), delay_s=0.0)
    world.s3.apply(Put(lease_key(KEYS, MessageId(1, 0)), b"not a lease"))

    assert bodies(await take_all(queue)) == "B"
    await world.clock.advance(OVER_S)
    assert bodies(await take_all(queue)) == "B"


async def test_when_a_batch_cannot_be_read_then_the_others_are_delivered(world: World) -> None:
    """R51."""
    sender, queue = world.process(), world.process()
    await sender.send(some("A"), delay_s=0.0)
    await sender.send(some("B"), delay_s=0.0)
    world.s3.apply(Put(batch_key(KEYS, BatchId(1, 1)), b"not a batch"))

    assert bodies(await take_all(queue)) == "B"


async def test_when_nothing_may_be_removed_then_the_queue_goes_on_and_no_task_fails(
    world: World,
) -> None:
    """R51: expired credentials, for instance; what is done is cleared away later."""
    queue, failed = world.process(), []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: failed.append(context))
    await queue.send(some("A"), delay_s=0.0)
    await ack_all(queue, await take(queue))
    store, perform = world.stores[0], world.stores[0].perform

    async def refuse_removals(request: Request) -> Reply:
        if isinstance(request, Remove):
            raise AccessDenied("s3://bucket", "s3:DeleteObject")
        return await perform(request)

    store.perform = refuse_removals  # type: ignore[method-assign]
    await world.clock.advance(S3QueueSettings().linger_s + 5.0)
    assert await take(queue) == []
    await world.clock.settle()
    gc.collect()
    store.perform = perform  # type: ignore[method-assign]
    assert await take(queue) == []
    await world.clock.settle()

    assert failed == []
    assert world.keys("messages/") == world.keys("pending/") == []

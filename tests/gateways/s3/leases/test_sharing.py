"""Several processes on one queue: one owner at a time, and zombies that can do nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gateways.s3.layout import S3QueueSettings
from gateways.s3.leases.codec import MessageId, decode_lease, encode_lease, lease_key
from gateways.s3.store.objects import Get, List, Put, Remove, Request
from pump.errors import ConnectionFailed
from pump.outcome import ABANDON, ACK, Defer, Settlement
from pump.testing.builders import a_message
from tests.gateways.s3.leases.worlds import (
    BUSY,
    FAULTS,
    KEYS,
    LEASE_S,
    LOST,
    OVER_S,
    REPEATED,
    REPEATED_BUSY,
    UNANSWERED,
    World,
    a_lease,
    ack_all,
    bodies,
    take,
    take_all,
)

LINGER_S = S3QueueSettings().linger_s


async def test_when_two_processes_receive_then_each_message_goes_to_one_of_them(
    world: World,
) -> None:
    """R12."""
    first, second = world.process(turns=1), world.process(turns=2)
    sent = [a_message() for _ in range(150)]
    await first.send(sent, delay_s=0.0)

    async def work(index: int) -> list[str]:
        queue = (first, second)[index % 2]
        received: list[str] = []
        while batch := await take(queue, 7):
            await ack_all(queue, batch)
            received += [each.message.id for each in batch]
        return received

    parts = await asyncio.gather(*(work(index) for index in range(6)))
    received = [each for part in parts for each in part]

    assert sorted(received) == sorted(each.id for each in sent)


@pytest.mark.parametrize("count", [2, 20])
async def test_when_many_processes_ask_for_one_message_then_one_gets_it(
    world: World, count: int
) -> None:
    """R13, R47."""
    processes = [world.process(turns=1 + number % 3) for number in range(count)]
    await processes[0].send([a_message()], delay_s=0.0)

    answers = await asyncio.gather(*(take(process) for process in processes))

    assert sorted(map(len, answers)) == [0] * (count - 1) + [1]


async def test_when_a_lease_is_over_then_one_of_two_reclaimers_wins_and_the_zombie_loses(
    world: World,
) -> None:
    """R9, R16, R48, T8: it can neither ack, renew nor requeue."""
    owner, *others = (world.process(turns=2) for _ in range(3))
    await owner.send([a_message()], delay_s=0.0)
    [held] = await take(owner)
    for other in others:
        assert await take(other) == []
    await world.clock.advance(OVER_S)

    answers = await asyncio.gather(*(take(other) for other in others))
    [again] = [each for answer in answers for each in answer]
    refused = [
        *await owner.settle([Settlement(held, ACK)]),
        *await owner.extend([held], lease_s=LEASE_S),
        *await owner.settle([Settlement(held, Defer(5.0))]),
        *await owner.settle([Settlement(held, ABANDON)]),
    ]

    assert again.attempt == 2
    assert [refusal.is_final for refusal in refused] == [True] * 4
    winner = others[0] if answers[0] else others[1]
    await ack_all(winner, [again])


@pytest.mark.parametrize("action", [ACK, ABANDON, Defer(1.0)])
async def test_when_a_lease_was_taken_over_then_the_store_refuses_whoever_slept(
    world: World, action: object
) -> None:
    """R9, T8: even one whose clock stood still asks in vain."""
    sleeper, other = world.process(), world.process()
    await sleeper.send([a_message()], delay_s=0.0)
    [held] = await take(sleeper)
    await world.clock.advance(OVER_S)
    [again] = await take(other)
    lease = sleeper._context.held_leases._by_receipt[held.receipt]
    lease.deadline_s = world.clock.now_s() + LEASE_S

    [refusal] = await sleeper.settle([Settlement(held, action)])  # type: ignore[arg-type]

    assert refusal.is_final
    await ack_all(other, [again])


@pytest.mark.parametrize("fault", [LOST, REPEATED, REPEATED_BUSY])
async def test_when_a_machine_slept_and_its_ack_is_in_doubt_then_the_next_owner_keeps_the_message(
    world: World, fault: str
) -> None:
    """R6, R9, T8: its clock stood still, and its connections are dead when it wakes up."""
    sleeper, other = world.process(), world.process()
    await sleeper.send([a_message()], delay_s=0.0)
    [held] = await take(sleeper)
    await world.clock.advance(OVER_S)
    [again] = await take(other)
    lease = sleeper._context.held_leases._by_receipt[held.receipt]
    lease.deadline_s = world.clock.now_s() + LEASE_S
    world.stores[0].faults.append((lambda request: isinstance(request, Put), fault))

    settling = asyncio.create_task(sleeper.settle([Settlement(held, ACK)]))
    await world.clock.advance(1.0)
    [refusal] = await settling

    assert refusal.is_final
    await ack_all(other, [again])


async def test_when_a_machine_slept_before_a_claim_then_nobody_else_gets_what_it_delivers(
    world: World,
) -> None:
    """R12, T8: its clock stood still, so the lease it writes first is over at the store already."""
    sleeper, other = world.process(), world.process()
    await sleeper.send(list(map(a_message, "AB")), delay_s=0.0)
    await ack_all(sleeper, await take(sleeper))
    awake_s = world.s3.server_s
    world.s3.server_s = lambda: awake_s() + 3600.0

    [held] = await take(sleeper)

    assert held.attempt == 1
    assert held.lease_expires_at_s > world.clock.now_s()
    assert await take(other) == []
    await ack_all(sleeper, [held])


async def test_when_a_machine_slept_before_a_renewal_then_nobody_else_gets_what_it_goes_on_with(
    world: World,
) -> None:
    """R15, T8: nobody had taken it over, but what it writes first is over at the store already."""
    sleeper, other = world.process(), world.process()
    await sleeper.send([a_message()], delay_s=0.0)
    [held] = await take(sleeper)
    awake_s = world.s3.server_s
    world.s3.server_s = lambda: awake_s() + 3600.0

    assert await sleeper.extend([held], lease_s=LEASE_S) == []

    assert await take(other) == []
    await ack_all(sleeper, [held])


async def test_when_a_lease_is_renewed_then_others_wait_for_its_new_end(world: World) -> None:
    """R15, R48."""
    owner, other = world.process(), world.process()
    await owner.send([a_message()], delay_s=0.0)
    [held] = await take(owner)
    assert await take(other) == []
    await world.clock.advance(20.0)
    assert await owner.extend([held], lease_s=LEASE_S) == []

    await world.clock.advance(20.0)
    assert await take(other) == []
    await world.clock.advance(OVER_S - 20.0)

    [again] = await take(other)
    assert again.attempt == 2


async def test_when_a_message_is_handed_back_then_another_process_finds_it_soon(
    world: World,
) -> None:
    """R11: it reads leases that have stood for a while."""
    owner, other = world.process(), world.process()
    await owner.send([a_message()], delay_s=0.0)
    [held] = await take(owner)
    waiting = asyncio.create_task(take(other, wait_s=LEASE_S / 2))
    await world.clock.advance(1.0)
    await owner.settle([Settlement(held, ABANDON)])
    await owner.aclose()

    await world.clock.advance(5.0)

    assert waiting.done()
    assert [each.attempt for each in await waiting] == [1]


async def test_when_a_lease_is_looked_at_then_it_says_who_has_the_message(world: World) -> None:
    """R10, R14: token, owner and expiry, bound to the version."""
    queue = world.process()
    await queue.send([a_message()], delay_s=0.0)
    [held] = await take(queue)

    lease = decode_lease(world.s3.objects[lease_key(KEYS, MessageId(1, 0))].body)

    assert lease.token == held.receipt
    assert lease.owner
    assert (lease.attempt, lease.fence) == (1, 1)
    assert lease.expires_s >= world.clock.time_s() + LEASE_S
    assert held.broker_id == "0000000000000001.000"


async def test_when_a_batch_is_done_by_two_processes_then_one_of_them_removes_it(
    world: World,
) -> None:
    """R5: neither knows by itself that all is done."""
    first, second = world.process(), world.process()
    await first.send(list(map(a_message, "ABCD")), delay_s=0.0)
    await ack_all(first, await take(first, 2))
    await ack_all(second, await take(second, 2))

    for _ in range(3):
        await world.clock.advance(LINGER_S)
        assert await take(first) == await take(second) == []
    await world.clock.settle()

    assert world.keys("messages/") == world.keys("pending/") == []


async def test_when_a_batch_was_cleaned_up_then_who_still_knows_it_claims_nothing(
    world: World,
) -> None:
    """R5, T8: a lease that could be made is not yet a message."""
    first, late = world.process(), world.process()
    await first.send(list(map(a_message, "AB")), delay_s=0.0)
    [held] = await take(late)
    await late.settle([Settlement(held, ABANDON)])
    await ack_all(first, await take_all(first))
    await world.clock.advance(5.0)
    await ack_all(first, await take_all(first))
    world.s3.apply(Remove(world.keys("messages/")))
    world.s3.apply(Remove(world.keys("pending/")))

    assert await take(late, 2) == []
    assert world.keys("pending/") == []


async def test_when_a_process_died_while_cleaning_up_then_the_next_one_finishes(
    world: World,
) -> None:
    """R5."""
    queue = world.process()
    await queue.send(list(map(a_message, "AB")), delay_s=0.0)
    await ack_all(queue, await take_all(queue))
    world.s3.apply(Remove(world.keys("messages/")))
    await world.clock.advance(LINGER_S + 5.0)
    await queue.send([a_message("C")], delay_s=0.0)

    assert bodies(await take(world.process(), 3)) == "C"
    assert world.keys("pending/") == [lease_key(KEYS, MessageId(2, 0))]


@pytest.mark.parametrize("max_receive_count", [None, 1])
async def test_when_a_claim_of_a_done_message_was_left_behind_then_nobody_takes_it_over(
    world: World, max_receive_count: int | None
) -> None:
    """R5, T8: its process died before it asked whether the batch still stands."""
    facts: dict[str, Any] = {"max_receive_count": max_receive_count, "dead_letter_queue": "dead"}
    owner, other = world.process(**facts), world.process(**facts)
    await owner.send([a_message()], delay_s=0.0)
    held = await take(owner)
    assert await take(other) == []
    await ack_all(owner, held)
    world.s3.apply(Remove([*world.keys("messages/"), *world.keys("pending/")]))
    left = a_lease(expires_s=0.0)
    world.s3.apply(Put(lease_key(KEYS, MessageId(1, 0)), encode_lease(left), is_new=True))
    await world.clock.advance(OVER_S)

    assert await take(other) == []
    assert world.keys("pending/") == []
    assert world.moved == []


async def test_when_a_batch_comes_late_then_it_is_found_soon(world: World) -> None:
    """R1, R4: its number was taken before that of one which is there already."""
    slow, quick, receiver = (world.process() for _ in range(3))
    await quick.send([a_message("A")], delay_s=0.0)
    await ack_all(receiver, await take_all(receiver))
    may_go = asyncio.Event()
    world.stores[0].gate = lambda request: may_go if "messages/" in str(request) else None
    sending = asyncio.create_task(slow.send([a_message("B")], delay_s=0.0))
    await world.clock.settle()
    await quick.send([a_message("C")], delay_s=0.0)
    early = bodies(await take_all(receiver))

    may_go.set()
    await sending

    assert early == "C"
    assert bodies(await take_all(receiver)) == "B"


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", [Put, Get, List])
@pytest.mark.parametrize("skipped", range(5))
async def test_when_one_request_goes_wrong_then_every_message_is_delivered_and_acked(
    world: World, fault: str, kind: type, skipped: int
) -> None:
    """R51, T8: whichever it is, and however it goes wrong."""
    queue, seen = world.process(), [0]

    def is_next(request: Request) -> bool:
        seen[0] += isinstance(request, kind)
        return isinstance(request, kind) and seen[0] == skipped + 1

    world.stores[0].faults.append((is_next, fault))

    async def work() -> str:
        await queue.send(list(map(a_message, "ABC")), delay_s=0.0)
        received = await take(queue, 3)
        assert await queue.extend(received, lease_s=LEASE_S) == []
        await ack_all(queue, received)
        return bodies(received)

    working = asyncio.create_task(work())
    await world.clock.advance(5.0)

    assert await working == "ABC"
    world.stores[0].faults.clear()
    await world.clock.advance(OVER_S)
    assert await take(queue) == []
    assert await take(world.process()) == []


async def test_when_the_store_does_not_answer_an_ack_then_it_may_be_asked_again(
    world: World,
) -> None:
    """R6: and the answer is true."""
    queue = world.process()
    await queue.send([a_message()], delay_s=0.0)
    [held] = await take(queue)
    world.stores[0].faults += [(lambda _: True, UNANSWERED)]
    world.stores[0].faults += [(lambda _: True, LOST)] * 20
    failing = asyncio.create_task(queue.settle([Settlement(held, ACK)]))
    await world.clock.advance(5.0)
    with pytest.raises(ConnectionFailed):
        await failing
    world.stores[0].faults.clear()

    refused = await queue.settle([Settlement(held, ACK)])

    assert refused == []
    await world.clock.advance(OVER_S)
    assert await take(world.process()) == []


async def test_when_an_extension_and_an_ack_meet_then_the_ack_is_applied(world: World) -> None:
    """R16: writes of one lease follow one another."""
    queue = world.process(turns=3)
    await queue.send([a_message()], delay_s=0.0)
    [held] = await take(queue)

    _, refused = await asyncio.gather(
        queue.extend([held], lease_s=LEASE_S), queue.settle([Settlement(held, ACK)])
    )

    assert refused == []
    assert world.s3.objects[lease_key(KEYS, MessageId(1, 0))].body == b""


async def test_when_a_busy_store_decides_nothing_then_the_receive_says_so(world: World) -> None:
    """R51: and the message is there afterwards."""
    queue = world.process()
    await queue.send([a_message()], delay_s=0.0)
    await ack_all(queue, await take_all(queue))
    await queue.send([a_message("B")], delay_s=0.0)
    world.stores[0].faults += [(lambda request: isinstance(request, Put), BUSY)] * 20
    failing = asyncio.create_task(take(queue))
    await world.clock.advance(5.0)
    with pytest.raises(Exception, match="throttling"):
        await failing
    world.stores[0].faults.clear()

    await world.clock.advance(5.0)

    assert bodies(await take(queue)) == "B"


async def test_when_the_last_of_a_batch_is_acked_then_its_bodies_are_gone_at_once(
    world: World,
) -> None:
    """R49: no time passes, and nobody receives or closes."""
    queue = world.process()
    await queue.send(list(map(a_message, "AB")), delay_s=0.0)
    held = await take_all(queue)

    await ack_all(queue, held[:1])
    await world.clock.settle()
    assert len(world.keys("messages/")) == 1
    await ack_all(queue, held[1:])
    await world.clock.settle()

    assert world.keys("messages/") == []
    assert [world.s3.objects[key].body for key in world.keys("pending/")] == [b"", b""]


@pytest.mark.parametrize("count", [1, 3])
async def test_when_a_consumer_acks_and_closes_then_no_body_stays_behind(
    world: World, count: int
) -> None:
    """R49: there is nobody who would remove it later."""
    sender, queue = world.process(), world.process(turns=2)
    for _ in range(count):
        await sender.send(list(map(a_message, "AB")), delay_s=0.0)

    await ack_all(queue, await take_all(queue))
    await queue.aclose()

    assert world.keys("messages/") == []


async def test_when_two_processes_did_a_batch_and_close_then_no_body_stays_behind(
    world: World,
) -> None:
    """R49: neither knows by itself that all is done; the last one looks once more."""
    first, second = world.process(), world.process()
    await first.send(list(map(a_message, "ABCD")), delay_s=0.0)
    ours, theirs = await take(first, 2), await take(second, 2)
    await ack_all(first, ours)
    await first.aclose()
    assert len(world.keys("messages/")) == 1

    await ack_all(second, theirs)
    await second.aclose()

    assert world.keys("messages/") == []


async def test_when_a_late_copy_of_a_batch_arrives_then_what_was_acked_does_not_come_back(
    world: World,
) -> None:
    """R5, R49: its write was repeated, and the first of the two was done before the second came."""
    queue, other = world.process(), world.process()
    await queue.send(list(map(a_message, "AB")), delay_s=0.0)
    [key] = world.keys("messages/")
    copy = Put(key, world.s3.objects[key].body, is_new=True)
    await ack_all(queue, await take_all(queue))
    await world.clock.settle()
    assert world.keys("messages/") == []

    await world.clock.advance(LINGER_S / 2)
    world.s3.apply(copy)

    assert await take(other, 2) == await take(world.process(), 2) == await take(queue, 2) == []
    await world.clock.advance(LINGER_S * 2)
    for each in (queue, other):
        assert await take(each, 2) == []
    await world.clock.settle()
    assert world.keys("messages/") == world.keys("pending/") == []


async def test_when_a_batch_is_done_before_its_unanswered_send_is_repeated_then_it_is_not(
    world: World,
) -> None:
    """R5, R49: the ends of its messages show that it was there."""
    sender, receiver = world.process(), world.process()
    may_go, way = asyncio.Event(), world.stores[0]

    def is_of_batch(kind: type[Put | Get]) -> Callable[[Request], bool]:
        return lambda request: isinstance(request, kind) and "messages/" in request.key

    way.faults.append((is_of_batch(Put), UNANSWERED))
    way.gate = lambda request: may_go if is_of_batch(Get)(request) else None
    sending = asyncio.create_task(sender.send([a_message("A")], delay_s=0.0))
    await world.clock.settle()

    await ack_all(receiver, await take_all(receiver))
    await world.clock.settle()
    may_go.set()
    await world.clock.advance(5.0)
    assert len(await sending) == 1

    assert world.keys("messages/") == []
    assert await take(world.process()) == []


async def test_when_leases_were_left_by_processes_that_closed_then_old_ones_are_removed(
    world: World,
) -> None:
    """R49, R5: young ones stay, for as long as a copy of their batch may be on its way."""
    for _ in range(20):
        gone = world.process()
        await gone.send([a_message()], delay_s=0.0)
        await ack_all(gone, await take(gone))
        await gone.aclose()
    await world.process().send([a_message("last")], delay_s=0.0)
    young = world.process()
    held = await take(young)
    assert len(world.keys("pending/")) == 21

    await world.clock.advance(LINGER_S + 5.0)
    await take(world.process())

    assert bodies(held) == "last"
    assert len(world.keys("pending/")) == 1

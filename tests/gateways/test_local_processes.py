"""Several processes on one folder: sharing, dying, taking over."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from pump import headers
from pump.clock import SYSTEM_CLOCK
from pump.errors import QueueNotFound
from pump.testing.virtual_clock import VirtualClock

from ..loops import BOTH_LOOPS
from .conftest import OpenLocal, StartChild
from .queue_user import LEASE_S, QueueUser

pytestmark = BOTH_LOOPS


async def test_when_a_second_gateway_opens_then_both_use_the_same_queues(
    open_local: OpenLocal,
) -> None:
    """R55: a second `pump send` while `pump run` runs."""
    host, client = await open_local(SYSTEM_CLOCK), await open_local(SYSTEM_CLOCK)
    here = await QueueUser(host).create()
    there = QueueUser(client)
    waiting = asyncio.create_task(here.receive(wait_s=20))

    await there.send("a", group="g", correlation_id="c", headers={"k": "v"})

    [delivery] = await waiting
    assert (host.is_host, client.is_host) == (True, False)
    assert (delivery.message.group, delivery.message.headers) == ("g", {"k": "v"})
    assert [m.body for m in await there.admin.peek("orders")] == []
    assert (await there.stats()).in_flight == 1
    with pytest.raises(QueueNotFound, match="nowhere"):
        await QueueUser(client, "nowhere").send("a")


async def test_when_a_remote_receive_is_cancelled_then_nothing_is_hidden(
    open_local: OpenLocal,
) -> None:
    """R4."""
    host, client = await open_local(SYSTEM_CLOCK), await open_local(SYSTEM_CLOCK)
    here, there = await QueueUser(host).create(), QueueUser(client)
    waiting = asyncio.create_task(there.receive(wait_s=60))
    await there.stats()
    waiting.cancel()
    await asyncio.wait([waiting])

    await here.send("a")

    [delivery] = await here.receive(wait_s=20)
    assert delivery.attempt == 1


async def test_when_a_remote_receive_is_cancelled_too_late_then_it_is_taken_back(
    open_local: OpenLocal,
) -> None:
    """R4: the answer is on its way already."""
    host, client = await open_local(SYSTEM_CLOCK), await open_local(SYSTEM_CLOCK)
    here, there = await QueueUser(host).create(), QueueUser(client)
    await here.send("a")
    receiving = asyncio.create_task(there.receive())
    while not (await here.stats()).in_flight:
        await asyncio.wait([receiving], timeout=0)
    receiving.cancel()
    await asyncio.wait([receiving])

    [again] = await here.receive(wait_s=20)
    assert again.attempt == 1


async def test_when_the_host_closes_then_a_client_takes_over_and_keeps_its_leases(
    open_local: OpenLocal,
) -> None:
    """T4."""
    host, client = await open_local(SYSTEM_CLOCK), await open_local(SYSTEM_CLOCK)
    here, there = await QueueUser(host).create(), QueueUser(client)
    await here.send("mine", "yours")
    [mine] = await here.receive(1)
    [yours] = await there.receive(1)

    await host.aclose()

    assert await there.ack(yours) == []
    [again] = await there.receive(wait_s=20)
    assert (again.message.id, again.attempt) == (mine.message.id, 2)
    assert client.is_host


async def test_when_the_host_closes_then_a_receive_in_flight_goes_on_with_the_next(
    open_local: OpenLocal,
) -> None:
    host, client, third = [await open_local(SYSTEM_CLOCK) for _ in range(3)]
    await QueueUser(host).create()
    waiting = [
        asyncio.create_task(QueueUser(gateway).receive(1, wait_s=60)) for gateway in (client, third)
    ]
    await QueueUser(third).stats()

    await host.aclose()
    await QueueUser(client).send("a", "b")

    got = [(await task)[0].message.body for task in waiting]
    assert sorted(got) == [b"a", b"b"]
    assert client.is_host != third.is_host


async def test_when_a_client_closes_then_its_leases_end_at_once(open_local: OpenLocal) -> None:
    """R45."""
    host, client = await open_local(SYSTEM_CLOCK), await open_local(SYSTEM_CLOCK)
    here, there = await QueueUser(host).create(), QueueUser(client)
    await here.send("a")
    await there.receive()

    await client.aclose()

    [again] = await here.receive(wait_s=20)
    assert again.attempt == 2


async def test_when_the_folder_has_a_long_name_then_processes_still_meet(
    open_local: OpenLocal, tmp_path: Path
) -> None:
    folder = tmp_path / ("long" * 30) / "queues"
    host, client = await open_local(SYSTEM_CLOCK, folder), await open_local(SYSTEM_CLOCK, folder)
    await QueueUser(host).create()

    await QueueUser(client).send("a")

    assert await QueueUser(host).bodies() == ["a"]
    assert not client.is_host


async def test_when_a_sender_is_killed_then_no_acknowledged_send_is_lost(
    open_local: OpenLocal, start_child: StartChild
) -> None:
    """T3: kill -9 in the middle of concurrent sends."""
    child = await start_child("send")
    acknowledged = await child.lines(500)
    await child.kill()
    acknowledged += await child.rest()

    orders = QueueUser(await open_local(SYSTEM_CLOCK))

    stored = [d.message.id for d in await orders.receive(100_000)]
    assert set(acknowledged) <= set(stored)
    assert len(stored) == len(set(stored))


async def test_when_a_worker_is_killed_then_no_confirmed_ack_is_undone(
    open_local: OpenLocal, start_child: StartChild
) -> None:
    """R5, T3: the worker hosts, so its death takes the engine with it."""
    worker = await start_child("work")
    assert await worker.line() == "ready"
    orders = QueueUser(await open_local(SYSTEM_CLOCK))
    sent = await orders.send(*map(str, range(300)))
    confirmed = await worker.lines(100)

    await worker.kill()
    confirmed += await worker.rest()

    left = await orders.receive(1000, wait_s=20)
    while len(left) + len(confirmed) < len(sent):
        # What it had received, but not confirmed, may need its leases to end first.
        more = await orders.receive(1000, wait_s=5)
        if not more:
            break
        left += more
    again = {d.message.id for d in left}
    assert not again & set(confirmed)
    # The worker may have been killed between an ack's commit and its word.
    missing = set(sent) - again - set(confirmed)
    assert len(missing) <= 5


async def test_when_a_message_kills_its_process_then_it_still_reaches_its_limit(
    open_local: OpenLocal, start_child: StartChild
) -> None:
    """R20, T5: the attempt is on disk before the handler sees the message."""
    first = await open_local(SYSTEM_CLOCK)
    orders = QueueUser(first, max_receive_count=2, dead_letter_queue="dead")
    await orders.create()
    await orders.send("poison")
    await first.aclose()

    for _ in range(2):
        assert await (await start_child("poisoned")).ended() == -9

    [letter] = await QueueUser(await open_local(SYSTEM_CLOCK), "dead").receive()
    assert letter.message.headers[headers.ATTEMPTS] == "2"


async def test_when_the_host_is_killed_then_a_living_client_goes_on_with_its_leases(
    open_local: OpenLocal, start_child: StartChild
) -> None:
    """T4, T3: receipts stay valid, sends in flight are stored once, receives go on."""
    host = await start_child("host")
    assert await host.line() == "host"
    client = await open_local(SYSTEM_CLOCK)
    orders = QueueUser(client)
    await orders.send("held")
    [held] = await orders.receive()
    sending = [asyncio.create_task(orders.send(str(n))) for n in range(200)]
    await sending[0]

    await host.kill()

    sent = [(await task)[0] for task in sending]
    assert await orders.ack(held) == []
    received = [d.message.id for d in await orders.receive(1000)]
    assert sorted(received) == sorted(sent)
    assert client.is_host


async def test_when_a_forked_child_outlives_the_host_then_another_still_takes_over(
    open_local: OpenLocal, start_child: StartChild
) -> None:
    """The child of a fork shares its parent's locks, unless it lets go of them."""
    host = await start_child("fork")
    forked = int(await host.line())
    client = await open_local(SYSTEM_CLOCK)

    await host.kill()
    try:
        await QueueUser(client).send("a")
    finally:
        os.kill(forked, signal.SIGKILL)

    assert client.is_host


async def test_when_a_client_is_killed_then_its_leases_end_at_once(
    open_local: OpenLocal, start_child: StartChild
) -> None:
    """T4, R45: long before the lease would."""
    orders = await QueueUser(await open_local(SYSTEM_CLOCK)).create()
    [sent] = await orders.send("a")
    client = await start_child("hold")
    assert await client.line() == sent

    await client.kill()

    [again] = await orders.receive(wait_s=15)
    assert (again.message.id, again.attempt) == (sent, 2)


async def test_when_the_disk_refuses_a_write_then_the_queue_goes_on_once_there_is_room(
    open_local: OpenLocal, start_child: StartChild
) -> None:
    """R51: a real EFBIG from the file system."""
    child = await start_child("fill")
    said: list[str] = []
    while not said or said[-1] != "end":
        said.append(await child.line())
    await child.kill()

    orders = QueueUser(await open_local(SYSTEM_CLOCK))

    assert any(line.startswith("refused") for line in said)
    stored = [d.message.id for d in await orders.receive(10_000)]
    assert stored == [line for line in said if not line.startswith("refused") and line != "end"]


async def test_when_the_host_stood_still_past_a_lease_then_an_extension_in_its_socket_counts(
    open_local: OpenLocal, start_child: StartChild
) -> None:
    """R8, law 3: it was asked for in time; the host hears it before it ends what is over."""
    host = await start_child("host")
    assert await host.line() == "host"
    orders = QueueUser(await open_local(SYSTEM_CLOCK), lease=timedelta(seconds=1.5))
    other = QueueUser(await open_local(SYSTEM_CLOCK))
    await orders.send("a")
    [held] = await orders.receive(wait_s=20)
    waiting = asyncio.create_task(other.receive(wait_s=60))
    await other.stats()

    host.signal(signal.SIGSTOP)
    extending = asyncio.create_task(orders.consumer.extend([held], lease_s=60))
    while SYSTEM_CLOCK.now_s() <= held.lease_expires_at_s + 0.1:
        await SYSTEM_CLOCK.sleep(0.1)
    host.signal(signal.SIGCONT)

    assert await extending == []
    assert await orders.ack(held) == []
    await orders.send("b")
    [next_one] = await waiting
    assert (next_one.message.body, next_one.attempt) == (b"b", 1)


# Virtual time: uvloop does not show whether a callback is waiting.
@pytest.mark.loops("asyncio")
async def test_when_a_lease_of_a_living_client_is_over_then_it_ends_in_spite_of_the_hearing(
    open_local: OpenLocal,
) -> None:
    """R8: who asked for nothing loses it, also while it goes on asking for other things."""
    clock = VirtualClock()
    host, client = await open_local(clock), await open_local(clock)
    here, there = await QueueUser(host).create(), QueueUser(client)
    await here.send("a")
    [held] = await there.receive()
    waiting = asyncio.create_task(here.receive(wait_s=60))

    await clock.advance(LEASE_S)
    [again] = await waiting

    assert (again.message.id, again.attempt) == (held.message.id, 2)
    assert await there.ack(held) != []


# Virtual time: uvloop does not show whether a callback is waiting.
@pytest.mark.loops("asyncio")
async def test_when_a_client_settles_too_late_then_it_is_refused_though_it_would_be_heard(
    open_local: OpenLocal,
) -> None:
    """Law 3, R6: even before another took the message."""
    clock = VirtualClock()
    here, there = [QueueUser(await open_local(clock)) for _ in range(2)]
    await here.create()
    await here.send("a", "b")
    [first, second] = await there.receive()
    await clock.advance(LEASE_S)

    assert len(await there.ack(first)) == 1
    assert len(await there.consumer.extend([second], lease_s=60)) == 1
    assert await here.bodies() == ["a", "b"]


PROGRAM = """
import asyncio, sys
from pump import App, Command, Subscription

class Job(Command):
    pass

class Odd(Exception):
    def __str__(self):
        raise SystemExit(3)

app = App(sys.argv[1])

@app.handler
async def handle(request: Job) -> None:
    raise {"exit": SystemExit(3), "says so": Odd()}[sys.argv[2]]

app.subscribe(Subscription(queue="jobs", request=Job))

async def main():
    async with app, app.pumping():
        await app.post(Job(), queue="jobs")
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["exit", "says so"])
def test_when_a_handler_ends_a_loop_of_the_users_own_then_the_process_ends(
    tmp_path: Path, how: str
) -> None:
    """Such a loop is broken off: nothing that the app would close then holds the process."""
    program = [sys.executable, "-c", PROGRAM, f"local://{tmp_path}/queues", how]

    ended = subprocess.run(
        program, cwd=Path(__file__).parents[2], capture_output=True, timeout=50, check=False
    )

    assert ended.returncode == 3, ended.stderr.decode()

"""Sweeper: what was spilled arrives once its queue is back, and is removed only then (T1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from pump.dispatcher import Sweeper, Swept
from pump.errors import (
    ConfigurationError,
    ConnectionFailed,
    SendFailed,
    StorageFailed,
    Throttled,
)
from pump.ports import ProducerPort
from pump.stores.spill import MemorySpill, SpilledMessage, SqliteSpill
from pump.subscription import MakeChannels, QueueSpec
from pump.testing.builders import a_message
from pump.testing.virtual_clock import EPOCH_S, VirtualClock

from .faulty_gateway import FaultyGateway


def spilled(id_: str, destination: str = "dead") -> SpilledMessage:
    return SpilledMessage(
        id=id_, message=a_message(id=f"m-{id_}"), destination=destination, spilled_at_s=EPOCH_S
    )


class Bench:
    """A sweeper between a spill and a gateway."""

    def __init__(self, spill: MemorySpill | SqliteSpill) -> None:
        self.clock = VirtualClock(chance=0.0)
        self.gateway = FaultyGateway(self.clock)
        self.spill = spill
        self.sweeper = Sweeper(spill, self.gateway, self.clock)

    async def make(self, *queues: str) -> None:
        for queue in queues:
            await self.gateway.admin().ensure(QueueSpec(name=queue), MakeChannels.CREATE)

    async def ids(self, queue: str = "dead") -> list[str]:
        messages = await self.gateway.admin().peek(queue, max_count=1_000)
        return [message.id for message in messages]

    async def waiting(self) -> list[str]:
        return [each.id for each in await self.spill.all()]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(SqliteSpill(tmp_path / "spill.db"))
    await bench.make("dead", "bad")
    yield bench
    await bench.gateway.aclose()


async def test_when_the_queue_is_back_then_what_was_spilled_is_sent_and_removed(
    bench: Bench,
) -> None:
    """T1."""
    for number in range(3):
        await bench.spill.put(spilled(str(number)))
    await bench.spill.put(spilled("x", "bad"))

    swept = await bench.sweeper.sweep()

    assert swept == Swept(sent=4, failed=0)
    assert await bench.ids() == ["m-0", "m-1", "m-2"]
    assert await bench.ids("bad") == ["m-x"]
    assert await bench.waiting() == []


async def test_when_nothing_waits_then_no_producer_is_made(bench: Bench) -> None:
    assert await bench.sweeper.sweep() == Swept()
    assert bench.gateway.record.producers == []


async def test_when_the_queue_is_still_away_then_nothing_is_removed(bench: Bench) -> None:
    """T1: removed only after its queue has accepted it."""
    await bench.spill.put(spilled("1"))
    bench.gateway.fail("send", ConnectionFailed("dead", "away"))

    swept = await bench.sweeper.sweep()

    assert swept == Swept(sent=0, failed=1)
    assert await bench.waiting() == ["1"]


async def test_when_one_queue_is_away_then_the_others_are_served(bench: Bench) -> None:
    """The missing queue is tried again; `bad` must not wait for it."""
    await bench.spill.put(spilled("1", "no such queue"))
    await bench.spill.put(spilled("2", "bad"))

    swept = await bench.sweeper.sweep()

    assert swept == Swept(sent=1, failed=1)
    assert await bench.waiting() == ["1"]
    assert await bench.ids("bad") == ["m-2"]


async def test_when_only_some_are_accepted_then_only_those_are_removed(bench: Bench) -> None:
    for number in range(3):
        await bench.spill.put(spilled(str(number)))
    bench.gateway.fail("send", SendFailed("dead", (("m-1", Throttled("dead")),)))

    swept = await bench.sweeper.sweep()

    assert swept == Swept(sent=2, failed=1)
    assert await bench.waiting() == ["1"]


async def test_when_the_queue_never_answers_then_the_sweep_gives_up_while_the_claim_holds(
    bench: Bench,
) -> None:
    await bench.spill.put(spilled("1"))
    bench.gateway.hang("send")
    sweeping = asyncio.create_task(bench.sweeper.sweep())

    await bench.clock.advance(15)

    assert await sweeping == Swept(sent=0, failed=1)
    assert await bench.waiting() == ["1"]


async def test_when_two_sweepers_work_then_each_message_is_sent_once(bench: Bench) -> None:
    for number in range(20):
        await bench.spill.put(spilled(str(number)))
    other = Sweeper(bench.spill, bench.gateway, bench.clock)

    swept = await asyncio.gather(bench.sweeper.sweep(), other.sweep())

    assert sum(each.sent for each in swept) == 20
    assert sorted(await bench.ids()) == sorted(f"m-{number}" for number in range(20))


async def test_when_running_then_a_broken_queue_is_tried_again_until_it_works(
    bench: Bench,
) -> None:
    """T1: re-sent when the queue is back."""
    await bench.spill.put(spilled("1"))
    bench.gateway.fail("send", ConnectionFailed("dead", "away"))
    running = asyncio.create_task(bench.sweeper.run())
    await bench.clock.advance(300)
    assert bench.gateway.record.calls["send"] >= 3
    assert await bench.ids() == []

    bench.gateway.heal("send")
    await bench.clock.advance(120)

    assert await bench.ids() == ["m-1"]
    assert await bench.waiting() == []
    assert not running.done()
    running.cancel()
    await asyncio.wait([running])


async def test_when_something_is_spilled_later_then_the_running_sweeper_finds_it(
    bench: Bench,
) -> None:
    running = asyncio.create_task(bench.sweeper.run())
    await bench.clock.advance(100)

    await bench.spill.put(spilled("1"))
    await bench.clock.advance(16)

    assert await bench.ids() == ["m-1"]
    running.cancel()
    await asyncio.wait([running])


async def test_when_more_is_spilled_than_a_sweep_takes_then_it_goes_on_at_once() -> None:
    bench = Bench(MemorySpill())
    await bench.make("dead")
    for number in range(250):
        await bench.spill.put(spilled(str(number)))
    running = asyncio.create_task(bench.sweeper.run())

    await bench.clock.settle()

    assert len(await bench.ids()) == 250
    running.cancel()
    await asyncio.wait([running])


class _Flaky(MemorySpill):
    """A store that fails at first."""

    failure_count = 2

    async def claim(self, *, now_s: float, lease_s: float, most: int) -> Sequence[SpilledMessage]:
        if self.failure_count:
            self.failure_count -= 1
            raise StorageFailed("/spill.db", "locked")
        return await super().claim(now_s=now_s, lease_s=lease_s, most=most)


async def test_when_the_store_fails_then_the_sweeper_goes_on() -> None:
    bench = Bench(_Flaky())
    await bench.make("dead")
    await bench.spill.put(spilled("1"))
    running = asyncio.create_task(bench.sweeper.run())

    await bench.clock.advance(120)

    assert await bench.ids() == ["m-1"]
    assert not running.done()
    running.cancel()
    await asyncio.wait([running])


async def test_when_the_network_fails_with_an_os_error_then_the_sweeper_goes_on() -> None:
    """The router takes an OSError for a failed send, and so must the sweeper."""
    bench = Bench(MemorySpill())
    await bench.make("dead")
    await bench.spill.put(spilled("1"))
    bench.gateway.fail("send", OSError("network unreachable"), times=1)
    running = asyncio.create_task(bench.sweeper.run())

    await bench.clock.advance(120)

    assert await bench.ids() == ["m-1"]
    assert not running.done()
    running.cancel()
    await asyncio.wait([running])


async def test_when_a_queue_cannot_even_be_named_here_then_the_others_are_served(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T1: the spill may have been written by an app on another gateway."""
    honest = bench.gateway.producer

    def producer(queue: str) -> ProducerPort:
        if queue == "no.such.name":
            raise ConfigurationError("queue", queue, "this gateway has no such names")
        return honest(queue)

    monkeypatch.setattr(bench.gateway, "producer", producer)
    await bench.spill.put(spilled("1", "no.such.name"))
    await bench.spill.put(spilled("2"))

    swept = await bench.sweeper.sweep()

    assert swept == Swept(sent=1, failed=1)
    assert await bench.ids() == ["m-2"]
    assert await bench.waiting() == ["1"]

"""The port that records before it settles, on the memory broker and a real ledger."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pump.clock import SYSTEM_CLOCK
from pump.errors import ConnectionFailed, StorageFailed
from pump.events import LeaseLostEvent
from pump.loop.processing import DeliveryResult
from pump.message import Delivery
from pump.outcome import ABANDON, ACK, Ack, Defer, Reject, RejectionReason, Settlement
from pump.spark.run.outcomes import Gate, OutcomeLedger, OutcomesFirst, OutcomesFirstPort
from pump.stores.ledger.parquet_ledger import ParquetLedger
from tests.ledger.support import journal_rows

from .rig import QUEUE, Rig


class Bench:
    """An open port, with what stands behind it."""

    def __init__(self, rig: Rig, *, flush: int = 200, quota: int = 1_000) -> None:
        self.rig = rig
        self.ledger = OutcomeLedger(ParquetLedger(rig.folder))
        self.gate = Gate(quota, SYSTEM_CLOCK)
        self.gateway = OutcomesFirst(
            rig.gateway, self.ledger, self.gate, flush=flush, clock=SYSTEM_CLOCK
        )
        port = self.gateway.consumer(rig.subscription)
        assert isinstance(port, OutcomesFirstPort)
        self.port = port

    async def receive(self, count: int = 10) -> list[Delivery]:
        return list(await self.port.receive(max_count=count, wait_s=0.05))

    def statuses(self) -> list[tuple[str, str]]:
        return [(row.message_id, row.status) for row in journal_rows(self.rig.folder)]

    @property
    def settled(self) -> list[str]:
        return [delivery.message.id for delivery, _ in self.rig.gateway.record.settled]


@asynccontextmanager
async def opened(rig: Rig, **bounds: int) -> AsyncIterator[Bench]:
    bench = Bench(rig, **bounds)
    await bench.ledger.open("memory", SYSTEM_CLOCK)
    await rig.gateway.open()
    try:
        yield bench
    finally:
        await bench.ledger.aclose()


def done(delivery: Delivery) -> DeliveryResult:
    return DeliveryResult(delivery, ACK, ACK)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


async def test_when_messages_are_settled_then_their_rows_were_durable_before(rig: Rig) -> None:
    """R78: outcomes first, then the broker."""
    sent = await rig.send(3)
    seen: list[list[tuple[str, str]]] = []
    async with opened(rig) as bench:
        results = [done(each) for each in await bench.receive()]
        tell = rig.gateway.pass_through

        async def look(operation: str) -> None:
            if operation == "settle":
                seen.append(bench.statuses())
            await tell(operation)

        rig.gateway.pass_through = look  # type: ignore[method-assign]

        assert not await bench.port.settle(results)

    assert seen == [[(each, "processed") for each in sent]]
    assert bench.settled == sent


async def test_when_a_settlement_is_tried_again_then_there_is_one_row(rig: Rig) -> None:
    """R78: a retry writes no second row."""
    [sent] = await rig.send(1)
    async with opened(rig) as bench:
        results = [done(each) for each in await bench.receive()]
        rig.gateway.fail("settle", ConnectionFailed("memory", "gone"), times=2)
        for _ in range(2):
            with pytest.raises(ConnectionFailed):
                await bench.port.settle(results)
        held = bench.gate.in_flight

        await bench.port.settle(results)

        assert bench.statuses() == [(sent, "processed")]
        assert (held, bench.gate.in_flight) == (1, 0)
    assert rig.rows() == [(sent, "processed", 1)]


async def test_when_whoever_settles_gives_up_waiting_then_there_is_still_one_row(
    rig: Rig,
) -> None:
    """R78: a cancelled write is written all the same, and known to be."""
    [sent] = await rig.send(1)
    async with opened(rig) as bench:
        results = [done(each) for each in await bench.receive()]
        first = asyncio.create_task(bench.port.settle(results))
        await asyncio.sleep(0)  # noqa: TID251 a yield, not a wait
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        told_early = list(bench.settled)

        await bench.port.settle(results)

    assert told_early == []
    assert bench.settled == [sent]
    assert rig.rows() == [(sent, "processed", 1)]


async def test_when_the_ledger_cannot_be_written_then_nothing_is_settled(rig: Rig) -> None:
    """R78: no row, no ack; and once the disk is back, both."""
    sent = await rig.send(2)
    async with opened(rig) as bench:
        store = bench.ledger._store
        assert store is not None
        write = store.append
        results = [done(each) for each in await bench.receive()]

        def fail(rows: object) -> bool:
            raise StorageFailed(str(rig.folder), "the disk is full")

        store.append = fail  # type: ignore[method-assign]
        for _ in range(2):
            with pytest.raises(StorageFailed, match="the disk is full"):
                await bench.port.settle(results)
        told_early = list(bench.settled)
        store.append = write  # type: ignore[method-assign]

        await bench.port.settle(results)

    assert told_early == []
    assert bench.settled == sent
    assert [row[:2] for row in rig.rows()] == [(each, "processed") for each in sent]


async def test_when_a_row_makes_no_sense_to_the_disk_then_nothing_is_settled(rig: Rig) -> None:
    """R78: a defect of the store is no reason to lose an outcome."""
    await rig.send(1)
    async with opened(rig) as bench:
        store = bench.ledger._store
        assert store is not None
        results = [done(each) for each in await bench.receive()]
        store.append = None  # type: ignore[method-assign,assignment]

        with pytest.raises(StorageFailed, match="TypeError"):
            await bench.port.settle(results)

        assert bench.settled == []


async def test_when_rows_cannot_be_rolled_then_messages_are_settled_all_the_same(rig: Rig) -> None:
    """R78: a row is durable in its journal; what a network's disk says of a roll stops nobody."""
    sent = await rig.send(2)
    async with opened(rig) as bench:
        store = bench.ledger._store
        assert store is not None
        write = store.append

        def want_care(rows: list[object]) -> bool:
            write(rows)  # type: ignore[arg-type]
            return True

        def care(now_s: float) -> None:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

        store.append = want_care  # type: ignore[method-assign,assignment]
        store.care = care  # type: ignore[method-assign]
        for each in await bench.receive():
            assert not await bench.port.settle([done(each)])

    assert bench.settled == sent
    assert [row[0] for row in bench.statuses()] == sent


async def test_when_several_settle_at_once_then_they_share_a_write(rig: Rig) -> None:
    """R78: group commit."""
    await rig.send(40)
    writes: list[int] = []
    async with opened(rig) as bench:
        store = bench.ledger._store
        assert store is not None
        write = store.append
        results = [done(each) for _ in range(4) for each in await bench.receive()]

        def count(rows: list[object]) -> bool:
            writes.append(len(rows))
            return write(rows)  # type: ignore[arg-type]

        store.append = count  # type: ignore[method-assign,assignment]
        await asyncio.gather(*(bench.port.settle(results[at : at + 10]) for at in range(0, 40, 10)))

    assert sum(writes) == 40
    assert len(writes) < 4


@pytest.mark.parametrize(
    ("action", "outcome", "status"),
    [
        (Defer(5.0), Defer(5.0), "retrying"),
        (ACK, Reject(RejectionReason.DELIVERY_ERROR, "no"), "discarded"),
    ],
)
async def test_when_a_message_ends_otherwise_then_its_row_says_so(
    rig: Rig, action: Ack | Defer, outcome: Defer | Reject, status: str
) -> None:
    """R78: retries and rejections have rows too."""
    [sent] = await rig.send(1)
    async with opened(rig) as bench:
        [delivery] = await bench.receive()

        await bench.port.settle([DeliveryResult(delivery, action, outcome)])

    assert rig.rows() == [(sent, status, 1)]


async def test_when_a_message_was_not_tried_or_is_settled_by_hand_then_it_has_no_row(
    rig: Rig,
) -> None:
    """R78: a row is an outcome of a handler's."""
    await rig.send(2)
    async with opened(rig) as bench:
        first, second = await bench.receive()

        await bench.port.settle([DeliveryResult(first, ABANDON, ABANDON), Settlement(second, ACK)])

    assert rig.rows() == []
    assert len(bench.settled) == 2


async def test_when_the_flush_bound_is_reached_then_no_more_is_received(rig: Rig) -> None:
    """R78: a killed task repeats at most `flush` messages of a subscription."""
    await rig.send(12)
    async with opened(rig, flush=5) as bench:
        held = await bench.receive()
        more = await bench.receive()
        await bench.port.settle([done(each) for each in held[:2]])
        room_again = await bench.receive()

    assert (len(held), len(more), len(room_again)) == (5, 0, 2)
    assert rig.gateway.record.asked == [5, 2]


async def test_when_a_lease_is_lost_then_there_is_room_again_and_a_row(rig: Rig) -> None:
    """R78: what is lost is not in hand, and the ledger says so."""
    [sent, _] = await rig.send(2)
    async with opened(rig, flush=1) as bench:
        [held] = await bench.receive()
        event = LeaseLostEvent(message_id=sent, queue=QUEUE, subscription=QUEUE, attempt=1)
        bench.ledger.record(event)
        bench.gateway.note(event)

        assert bench.gate.in_flight == 0
        assert len(await bench.receive()) == 1

    assert held.message.id == sent
    assert rig.rows() == [(sent, "lease-lost", 1)]


async def test_when_the_quota_is_received_then_no_more_is_asked_for(rig: Rig) -> None:
    """R78: a slice has so many messages, to the message."""
    await rig.send(10)
    async with opened(rig, quota=7) as bench:
        received = await bench.receive(5), await bench.receive(5), await bench.receive(5)

    assert [len(each) for each in received] == [5, 2, 0]
    assert bench.gate.is_full


async def test_when_a_receive_is_cancelled_then_its_room_is_free_again(rig: Rig) -> None:
    """R78: a drain must not eat the bound."""
    await rig.send(1)
    async with opened(rig, flush=3, quota=4) as bench:
        [first] = await bench.receive()
        await bench.port.settle([done(first)])
        waiting = asyncio.create_task(bench.port.receive(max_count=3, wait_s=30.0))
        await asyncio.sleep(0)  # noqa: TID251 a yield, not a wait
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

        assert not bench.gate.is_full
        assert bench.port._room == 3


async def test_when_the_gate_is_closed_then_nothing_is_received(rig: Rig) -> None:
    """R78: a slice whose time is over takes nothing more."""
    await rig.send(3)
    async with opened(rig) as bench:
        bench.gate.close()

        assert await bench.receive() == []
    assert rig.gateway.record.calls["receive"] == 0


async def test_when_a_port_is_closed_then_nothing_of_it_is_in_hand(rig: Rig) -> None:
    """R78: a pump that broke is started again on a new port, and the task must end some time."""
    await rig.send(3)
    async with opened(rig) as bench:
        held = await bench.receive()
        await bench.port.aclose()
        late = LeaseLostEvent(
            message_id=held[0].message.id, queue=QUEUE, subscription=QUEUE, attempt=1
        )
        bench.gateway.note(late)

        assert (len(held), bench.port.held, bench.gate.in_flight) == (3, 0, 0)

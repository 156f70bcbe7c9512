"""The engine and its journal: memory never runs ahead of what is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import attrs
import pytest

from gateways._engine.engine import QueueEngine
from gateways._engine.journal import Done, Entry, MovedEntry
from gateways.memory import MemoryGateway
from pump.errors import StorageFailed
from pump.testing.virtual_clock import VirtualClock

from .queue_user import LEASE_S, QueueUser

FULL = StorageFailed("queues.db", "full")


class PatientJournal:
    """Writes when told to, and refuses what it is told to refuse."""

    def __init__(self) -> None:
        self.is_held = False
        self.refuses: Callable[[Entry], bool] = lambda entry: False
        self._waiting: list[tuple[Entry, Done, asyncio.Future[None]]] = []

    def write(self, entry: Entry, done: Done) -> asyncio.Future[None]:
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((entry, done, ticket))
        if not self.is_held:
            self.release()
        return ticket

    def hold(self) -> None:
        self.is_held = True

    def release(self, *, fails: bool = False) -> None:
        self.is_held = False
        waiting, self._waiting = self._waiting, []
        for entry, done, ticket in waiting:
            error = FULL if fails or self.refuses(entry) else None
            done(error)
            if error is not None and not ticket.done():
                ticket.set_exception(error)
                ticket.exception()
            elif not ticket.done():
                ticket.set_result(None)


@attrs.define(eq=False)
class Shop:
    journal: PatientJournal
    orders: QueueUser

    async def begin(self, work: object) -> asyncio.Task[object]:
        """Start an operation and let it come to its write."""
        assert asyncio.iscoroutine(work)
        task = asyncio.create_task(work)
        await asyncio.wait([task], timeout=0)
        return task


@pytest.fixture
async def shop(clock: VirtualClock) -> Shop:
    journal = PatientJournal()
    gateway = MemoryGateway(clock, engine=QueueEngine(clock, journal))
    orders = QueueUser(gateway, max_receive_count=2, dead_letter_queue="dead")
    return Shop(journal, await orders.create())


async def test_when_a_send_is_not_written_yet_then_nobody_sees_it(shop: Shop) -> None:
    """T3."""
    shop.journal.hold()
    sending = await shop.begin(shop.orders.send("a"))

    assert (await shop.orders.stats()).visible == 0
    assert not sending.done()

    shop.journal.release()
    await sending
    assert (await shop.orders.stats()).visible == 1


async def test_when_a_send_cannot_be_written_then_it_never_was(shop: Shop) -> None:
    shop.journal.hold()
    sending = await shop.begin(shop.orders.send("a", deduplication_id="k"))
    shop.journal.release(fails=True)

    with pytest.raises(StorageFailed):
        await sending

    await shop.orders.send("b", deduplication_id="k")
    assert await shop.orders.bodies() == ["b"]


async def test_when_a_receive_cannot_be_written_then_nothing_is_hidden_or_counted(
    shop: Shop,
) -> None:
    await shop.orders.send("a")
    shop.journal.hold()
    receiving = await shop.begin(shop.orders.receive())
    assert (await shop.orders.stats()).in_flight == 1
    shop.journal.release(fails=True)

    with pytest.raises(StorageFailed):
        await receiving

    [a] = await shop.orders.receive()
    assert a.attempt == 1


async def test_when_a_receive_is_cancelled_before_it_is_written_then_the_next_gets_it(
    shop: Shop,
) -> None:
    """R4."""
    await shop.orders.send("a")
    shop.journal.hold()
    receiving = await shop.begin(shop.orders.receive())
    receiving.cancel()
    await asyncio.wait([receiving])
    shop.journal.release()

    [a] = await shop.orders.receive()
    assert a.attempt == 1


async def test_when_an_ack_is_being_written_then_its_lease_cannot_run_out(
    shop: Shop, clock: VirtualClock
) -> None:
    """R5: the message is in limbo, neither leased nor visible."""
    await shop.orders.send("a")
    [a] = await shop.orders.receive()
    shop.journal.hold()
    acking = await shop.begin(shop.orders.ack(a))
    await clock.advance(LEASE_S)

    assert (await shop.orders.stats()).in_flight == 1
    assert await shop.orders.bodies() == []

    shop.journal.release()
    assert await acking == []
    assert (await shop.orders.stats()).in_flight == 0


@pytest.mark.parametrize("action", ["ack", "defer", "abandon"])
async def test_when_a_settlement_cannot_be_written_then_the_lease_is_as_before(
    shop: Shop, action: str
) -> None:
    await shop.orders.send("a")
    [a] = await shop.orders.receive()
    shop.journal.hold()
    settling = await shop.begin(getattr(shop.orders, action)(a))
    shop.journal.release(fails=True)

    with pytest.raises(StorageFailed):
        await settling

    assert await shop.orders.ack(a) == []
    assert (await shop.orders.stats()).visible == 0


async def test_when_a_redrive_cannot_be_written_then_it_is_tried_again(
    shop: Shop, clock: VirtualClock
) -> None:
    """R20: until then the message stays where it is, hidden."""
    await shop.orders.send("a")
    shop.journal.refuses = lambda entry: isinstance(entry, MovedEntry)
    for _ in range(2):
        [a] = await shop.orders.receive()
        await shop.orders.defer(a)
    assert (await shop.orders.stats("dead")).visible == 0
    assert (await shop.orders.stats()).in_flight == 1

    shop.journal.refuses = lambda entry: False
    await clock.advance(2)

    assert (await shop.orders.stats("dead")).visible == 1
    assert (await shop.orders.stats()).in_flight == 0


async def test_when_a_purge_cannot_be_written_then_everything_is_still_there(shop: Shop) -> None:
    await shop.orders.send("a")
    shop.journal.refuses = lambda entry: True

    with pytest.raises(StorageFailed):
        await shop.orders.admin.purge("orders")
    with pytest.raises(StorageFailed):
        await QueueUser(shop.orders.gateway, "other").create()

    assert [stats.name for stats in await shop.orders.admin.queues()] == ["dead", "orders"]
    assert (await shop.orders.stats()).visible == 1


async def test_when_purged_while_an_ack_is_being_written_then_the_counts_are_right(
    shop: Shop,
) -> None:
    await shop.orders.send("a", "b")
    a, b = await shop.orders.receive()
    shop.journal.hold()
    purging = await shop.begin(shop.orders.admin.purge("orders"))
    settling = [
        await shop.begin(shop.orders.ack(a)),
        await shop.begin(shop.orders.defer(b, delay_s=5)),
    ]
    shop.journal.release()
    await asyncio.gather(purging, *settling)

    stats = await shop.orders.stats()
    assert (stats.visible, stats.in_flight, stats.delayed) == (0, 0, 0)


async def test_when_purged_while_a_send_is_being_written_then_its_duplicate_is_still_refused(
    shop: Shop,
) -> None:
    """R39: decided after the purge, it is not one of those that were removed."""
    await shop.orders.send("before", deduplication_id="old")
    shop.journal.hold()
    purging = await shop.begin(shop.orders.admin.purge("orders"))
    sending = await shop.begin(shop.orders.send("a", deduplication_id="k"))
    shop.journal.release()
    await asyncio.gather(purging, sending)

    await shop.orders.send("again", deduplication_id="k")

    assert await shop.orders.bodies() == ["a"]

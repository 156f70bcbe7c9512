"""Nonce tracking and its store: shared, late, full and closed."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from pump.crypto import (
    Encryption,
    Key,
    KeyRing,
    MemoryNonces,
    NonceTracking,
    SqliteNonces,
)
from pump.decide import decide
from pump.errors import StorageFailed
from pump.observability.telemetry import Counters
from pump.outcome import Defer
from pump.stores.nonces import NonceMark
from pump.subscription import retry
from pump.testing.virtual_clock import VirtualClock

from .desk import (
    MESSAGE,
    Log,
    OpenDesk,
    accept,
    delivered,
    refuse,
)


async def test_when_two_processes_share_a_file_then_a_copy_is_accepted_by_one(
    desk: OpenDesk, tmp_path: Path
) -> None:
    """T6; `test_nonces` does it with real processes."""
    key = bytes(range(32))
    one, two = [
        await desk(
            Encryption(
                KeyRing(Key("k", key)), nonces=NonceTracking(store=SqliteNonces(tmp_path / "n.db"))
            )
        )
        for _ in range(2)
    ]
    sealed = await one.seal()

    outcomes = await asyncio.gather(
        one.open(sealed, broker_id="b-1"), two.open(sealed, broker_id="b-2"), return_exceptions=True
    )

    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Message", "NonceReused"]


async def test_when_a_message_is_about_to_be_routed_then_another_process_may_open_its_copy(
    desk: OpenDesk, tmp_path: Path
) -> None:
    """T6: the release is in the file before the copy is in its queue."""
    key = bytes(range(32))
    one, two = [
        await desk(
            Encryption(
                KeyRing(Key("k", key)), nonces=NonceTracking(store=SqliteNonces(tmp_path / "n.db"))
            )
        )
        for _ in range(2)
    ]
    sealed = await one.seal()
    original = await accept(one, sealed, broker_id="b-1")
    await refuse(two, sealed, broker_id="b-2", queue="dead")

    await one.encryption.routing(original)

    copy = await accept(two, sealed, broker_id="b-2", queue="dead")
    one.encryption.settled(original, is_handled=False)
    two.encryption.settled(copy, is_handled=True)
    await refuse(two, sealed, broker_id="b-3")


async def test_when_the_release_cannot_be_written_then_routing_goes_on_and_it_is_written_later(
    desk: OpenDesk, ring: KeyRing, clock: VirtualClock
) -> None:
    """T6: a nonce store must not keep a message from its dead-letter queue."""
    store = BrokenNonces()
    open_desk = await desk(Encryption(ring, nonces=NonceTracking(store=store), clock=clock))
    original = await accept(open_desk, await open_desk.seal(), broker_id="b-1")
    store.is_broken = True

    await open_desk.encryption.routing(original)
    store.is_broken = False
    await clock.advance(30)

    assert store.batches == [1]
    await accept(open_desk, original.message, broker_id="b-2")


async def test_when_an_app_closes_then_what_was_settled_last_is_on_the_disk(
    ring: KeyRing, tmp_path: Path
) -> None:
    """T6: written behind, and flushed at the end."""
    store = SqliteNonces(tmp_path / "nonces.db")
    encryption = Encryption(ring, nonces=NonceTracking(store=store))
    await encryption.start(Counters(), None)
    sealed = await encryption.encrypt(MESSAGE, "orders")
    delivery = delivered(sealed, broker_id="b-1")
    await encryption.decrypt(delivery)

    encryption.settled(delivery, is_handled=True)
    await encryption.aclose()

    async with SqliteNonces(tmp_path / "nonces.db") as again:
        nonces = [row async for row in rows(again)]
    assert nonces == [(1, "broker\0orders\0b-1")]


async def rows(store: SqliteNonces) -> AsyncIterator[tuple[int, str]]:
    await store.claim(b"x", holder="x", now_s=0.0, until_s=0.0)
    assert store._file._connections is not None
    query = "SELECT is_done, holder FROM pump_nonces WHERE holder != 'x'"
    for is_done, holder in await store._file._connections.claims.execute_fetchall(query):
        yield is_done, holder


class BrokenNonces(MemoryNonces):
    """A store whose disk is full for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.is_broken = False
        self.batches: list[int] = []

    async def claim(self, nonce: bytes, *, holder: str, now_s: float, until_s: float) -> bool:
        self._check()
        return await super().claim(nonce, holder=holder, now_s=now_s, until_s=until_s)

    async def mark(self, marks: Sequence[NonceMark]) -> None:
        self._check()
        self.batches.append(len(marks))
        await super().mark(marks)

    def _check(self) -> None:
        if self.is_broken:
            raise StorageFailed("nonces.db", "cannot grow; the disk is full")


async def test_when_the_disk_is_full_then_the_message_is_retried_and_not_accepted_unseen(
    desk: OpenDesk, ring: KeyRing
) -> None:
    """T6."""
    store = BrokenNonces()
    open_desk = await desk(Encryption(ring, nonces=NonceTracking(store=store)))
    sealed = await open_desk.seal()
    store.is_broken = True

    with pytest.raises(StorageFailed) as caught:
        await open_desk.open(sealed, broker_id="b-1")

    outcome = decide(caught.value, attempt=1, strategy=retry(max_retries=3))
    assert isinstance(outcome, Defer)
    store.is_broken = False
    await accept(open_desk, sealed, broker_id="b-1", attempt=2)


async def test_when_completions_cannot_be_written_then_they_are_as_soon_as_they_can(
    desk: OpenDesk, ring: KeyRing, clock: VirtualClock, log: Log
) -> None:
    """T6: logged once; meanwhile the claim refuses copies."""
    store = BrokenNonces()
    open_desk = await desk(Encryption(ring, nonces=NonceTracking(store=store), clock=clock))
    deliveries = [
        await accept(open_desk, await open_desk.seal(), broker_id=number) for number in range(3)
    ]
    store.is_broken = True

    for delivery in deliveries:
        open_desk.encryption.settled(delivery, is_handled=True)
    await clock.advance(30)
    store.is_broken = False
    await clock.advance(60)

    assert store.batches == [3]
    assert [(line["event"], line["log_level"]) for line in log] == [("nonces.unrecorded", "error")]
    await refuse(open_desk, deliveries[0].message, broker_id=99)


async def test_when_the_disk_is_still_full_at_the_end_then_closing_says_so_and_goes_on(
    ring: KeyRing, clock: VirtualClock, log: Log
) -> None:
    """R69: the keys are wiped all the same."""
    store = BrokenNonces()
    encryption = Encryption(ring, nonces=NonceTracking(store=store), clock=clock)
    await encryption.start(Counters(), None)
    delivery = delivered(await encryption.encrypt(MESSAGE, "orders"), broker_id="b-1")
    await encryption.decrypt(delivery)
    store.is_broken = True

    encryption.settled(delivery, is_handled=True)
    await encryption.aclose()

    assert [line["event"] for line in log] == ["nonces.unrecorded"]
    assert ring.keys[0].is_wiped


async def test_when_many_messages_are_settled_at_once_then_they_are_written_together(
    desk: OpenDesk, ring: KeyRing, clock: VirtualClock
) -> None:
    store = BrokenNonces()
    open_desk = await desk(Encryption(ring, nonces=NonceTracking(store=store), clock=clock))
    deliveries = [
        await accept(open_desk, await open_desk.seal(), broker_id=number) for number in range(50)
    ]

    for delivery in deliveries:
        open_desk.encryption.settled(delivery, is_handled=True)
    await clock.settle()

    assert store.batches == [50]


async def test_when_tracking_is_pickled_then_the_copy_uses_the_same_file(
    desk: OpenDesk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEYS", "k:" + "A" * 43)
    encryption = Encryption(
        KeyRing.from_environment("KEYS"),
        nonces=NonceTracking(store=SqliteNonces(tmp_path / "nonces.db")),
    )
    one, two = await desk(encryption), await desk(pickle.loads(pickle.dumps(encryption)))
    sealed = await one.seal()
    await accept(one, sealed, broker_id="b-1")

    await refuse(two, sealed, broker_id="b-2")

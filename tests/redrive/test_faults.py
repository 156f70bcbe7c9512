"""What goes wrong without anybody dying."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from pump.errors import (
    ConnectionFailed,
    MessageTooLarge,
    SendFailed,
    StorageFailed,
)
from pump.redrive import folder as record_module
from pump.redrive.folder import lease_for
from pump.stores.ledger import SqliteLedger
from pump.testing.virtual_clock import VirtualClock

from .rig import (
    DEAD,
    TARGET,
    Redrive,
    Rig,
    a_dead_letter,
    handed_back,
    through_time,
)

ORDERS = [a_dead_letter(n) for n in range(8)]
OTHERS = [a_dead_letter(n, type="Payment") for n in range(8, 12)]


async def a_rig(clock: VirtualClock) -> Rig:
    rig = Rig(clock)
    await rig.fill(*ORDERS, *OTHERS)
    return rig


def raising(error: Exception, *, times: int = 1) -> Callable[[], Awaitable[None]]:
    async def fault() -> None:
        nonlocal times
        times -= 1
        if times >= 0:
            raise error

    return fault


async def test_when_nothing_goes_wrong_then_the_selected_are_moved_as_they_were(
    clock: VirtualClock, folder: Path
) -> None:
    """R78: same id, body, type and headers, those of the rejection included; the rest stays."""
    rig = await a_rig(clock)

    counts = await through_time(clock, Redrive(rig, folder).run())

    assert (counts.sent, counts.removed, counts.repeated, counts.refused) == (8, 8, 0, 0)
    moved = await rig.admin().peek(TARGET, max_count=100)
    assert sorted((each.id, each.body, each.type, dict(each.headers)) for each in moved) == [
        (each.id, each.body, each.type, dict(each.headers)) for each in ORDERS
    ]
    assert len({each.deduplication_id for each in moved}) == 8
    assert await rig.ids_in(DEAD) == [each.id for each in OTHERS]
    assert await rig.in_flight(DEAD) == 0


async def test_when_a_send_is_not_answered_then_it_is_sent_again_and_is_there_once(
    clock: VirtualClock, folder: Path
) -> None:
    """R78: the answer is lost, not the message; the same id makes them one."""
    rig = await a_rig(clock)
    silent = True

    async def hang() -> None:
        nonlocal silent
        if silent:
            silent = False
            await asyncio.Event().wait()

    rig.after["send"] = hang

    counts = await through_time(clock, Redrive(rig, folder).run())

    assert (counts.sent, counts.repeated) == (8, 4)
    assert await rig.ids_in(TARGET) == [each.id for each in ORDERS]


async def test_when_the_target_stays_away_then_it_ends_with_the_error_and_can_go_on(
    clock: VirtualClock, folder: Path
) -> None:
    """R78: what was received is handed back, nothing is removed, and the next run does it."""
    rig = await a_rig(clock)
    rig.before["send"] = raising(ConnectionFailed("orders", "no route"), times=1_000)

    with pytest.raises(ConnectionFailed):
        await through_time(clock, Redrive(rig, folder).run())

    assert await rig.ids_in(DEAD) == [each.id for each in [*ORDERS, *OTHERS]]
    assert rig.calls["ack"] == 0
    again = Redrive(rig.next_life(), folder)
    await through_time(clock, again.run())
    assert again.prepared is not None
    assert again.prepared.is_resumed
    assert await rig.ids_in(TARGET) == [each.id for each in ORDERS]


async def test_when_part_of_a_batch_is_refused_then_only_the_accepted_are_removed(
    clock: VirtualClock, folder: Path
) -> None:
    """R78: a message that the target will not have stays where it is, and is reported."""
    rig = await a_rig(clock)
    too_large = MessageTooLarge(TARGET, 2, 1)

    class PickyProducer:
        def __init__(self) -> None:
            self._inner = rig.memory.producer(TARGET)

        async def send(self, messages, *, delay_s=0.0):  # type: ignore[no-untyped-def]
            await self._inner.send([each for each in messages if each.id != "m-2"])
            if any(each.id == "m-2" for each in messages):
                raise SendFailed(TARGET, (("m-2", too_large),))
            return [each.id for each in messages]

        async def aclose(self) -> None:
            await self._inner.aclose()

    rig.producer = lambda queue: PickyProducer()  # type: ignore[method-assign]
    redrive = Redrive(rig, folder)

    counts = await through_time(clock, redrive.run())

    assert (counts.sent, counts.removed, counts.refused) == (7, 7, 1)
    assert counts.first_refusal == f"m-2: {too_large}"
    assert redrive.left == 1
    assert await rig.ids_in(TARGET) == [each.id for each in ORDERS if each.id != "m-2"]
    assert await rig.ids_in(DEAD) == ["m-2", *(each.id for each in OTHERS)]


async def test_when_a_part_has_no_answer_then_that_part_is_sent_again(
    clock: VirtualClock, folder: Path
) -> None:
    """R78: of a batch in chunks, the chunk that was cut off is sent again, not the others."""
    rig = await a_rig(clock)
    lost = tuple((each.id, ConnectionFailed(TARGET, "reset")) for each in ORDERS[2:4])
    rig.after["send"] = raising(SendFailed(TARGET, lost))

    counts = await through_time(clock, Redrive(rig, folder).run())

    assert (counts.sent, counts.repeated) == (8, 2)
    assert await rig.ids_in(TARGET) == [each.id for each in ORDERS]


async def test_when_a_lease_is_lost_while_sending_then_the_message_is_removed_when_it_comes_again(
    clock: VirtualClock, folder: Path
) -> None:
    """R78: it was sent and recorded, so it is never sent a second time."""
    rig = await a_rig(clock)
    rig.forgets = True
    slow = True

    async def outlast_the_lease() -> None:
        nonlocal slow
        if slow:
            slow = False
            rig.before["extend"] = raising(ConnectionFailed(DEAD, "no"), times=1_000)
            await clock.sleep(lease_for(0) - 2)  # the answer takes less than it is waited for
            await clock.sleep(1)

    async def too_late() -> None:
        if rig.calls["ack"] == 1:
            await clock.sleep(lease_for(0))
            rig.before.pop("extend", None)

    rig.after["send"], rig.before["ack"] = outlast_the_lease, too_late

    counts = await through_time(clock, Redrive(rig, folder).run())

    assert counts.lost_leases >= 4
    assert (counts.sent, counts.removed) == (8, 8)
    assert await rig.ids_in(TARGET) == [each.id for each in ORDERS]
    assert await rig.ids_in(DEAD) == [each.id for each in OTHERS]


async def test_when_a_lease_is_lost_before_sending_then_the_message_is_not_sent_by_us(
    clock: VirtualClock, folder: Path
) -> None:
    """R78: it may be in other hands; it is sent when it comes again."""
    rig = await a_rig(clock)
    rig.forgets = True
    rig.before["extend"] = raising(ConnectionFailed(DEAD, "no"), times=60)

    counts = await through_time(clock, Redrive(rig, folder, rate=0.1).run())

    assert counts.lost_leases > 0
    assert await rig.ids_in(TARGET) == [each.id for each in ORDERS]
    assert await rig.ids_in(DEAD) == [each.id for each in OTHERS]


async def test_when_the_record_cannot_be_written_then_nothing_is_sent(
    clock: VirtualClock, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R78: the disk is full before the first send: the queues stay as they are."""
    rig = await a_rig(clock)
    fill_the_disk(monkeypatch, after=0)

    with pytest.raises(StorageFailed, match="free some disk space"):
        await through_time(clock, Redrive(rig, folder).run())

    assert rig.calls["send"] == 0
    assert await rig.ids_in(DEAD) == [each.id for each in [*ORDERS, *OTHERS]]
    assert handed_back(rig) == 4


async def test_when_the_disk_is_full_after_a_send_then_nothing_is_removed_and_no_more_is_sent(
    clock: VirtualClock, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R78: what is not recorded is not removed; with room again, the next run ends it."""
    rig = await a_rig(clock)
    with monkeypatch.context() as full:
        fill_the_disk(full, after=1)
        with pytest.raises(StorageFailed, match="free some disk space"):
            await through_time(clock, Redrive(rig, folder).run())
    assert (rig.calls["send"], rig.calls["ack"]) == (1, 0)

    counts = await through_time(clock, Redrive(rig.next_life(), folder).run())

    assert counts.repeated == 4
    assert await rig.ids_in(TARGET) == [each.id for each in ORDERS]
    assert await rig.ids_in(DEAD) == [each.id for each in OTHERS]


async def test_when_the_ledger_cannot_be_written_then_no_more_is_sent_and_the_next_run_removes(
    clock: VirtualClock, folder: Path, tmp_path: Path
) -> None:
    """R78: a message leaves its queue only after its row is on the disk."""
    rig = await a_rig(clock)
    ledger = SqliteLedger(tmp_path / "ledger.db")

    class FullStore:
        care_every_s = None

        def open(self) -> None:
            return None

        def append(self, rows: object) -> bool:
            raise StorageFailed(str(tmp_path), "the disk is full")

        def close(self, now_s: float) -> None:
            return None

    with pytest.MonkeyPatch.context() as full:
        full.setattr(ledger, "new_store", FullStore)
        with pytest.raises(StorageFailed):
            await through_time(clock, Redrive(rig, folder, ledger=ledger).run())
    assert (rig.calls["send"], rig.calls["ack"]) == (1, 0)

    counts = await through_time(clock, Redrive(rig.next_life(), folder, ledger=ledger).run())

    assert (counts.sent, counts.removed, counts.repeated) == (4, 8, 0)
    assert await rig.ids_in(TARGET) == [each.id for each in ORDERS]


async def test_when_acks_are_not_answered_then_they_are_asked_for_again(
    clock: VirtualClock, folder: Path
) -> None:
    """R78: the broker is away for a moment."""
    rig = await a_rig(clock)
    rig.before["ack"] = raising(ConnectionFailed(DEAD, "reset"), times=2)

    counts = await through_time(clock, Redrive(rig, folder).run())

    assert (counts.sent, counts.removed) == (8, 8)


async def test_when_acks_are_never_answered_then_it_ends_and_the_next_run_only_removes(
    clock: VirtualClock, folder: Path
) -> None:
    """R78."""
    rig = await a_rig(clock)
    rig.forgets = True
    rig.before["ack"] = raising(ConnectionFailed(DEAD, "reset"), times=1_000)
    with pytest.raises(ConnectionFailed):
        await through_time(clock, Redrive(rig, folder).run())

    counts = await through_time(clock, Redrive(rig.next_life(), folder).run())

    assert (counts.sent, counts.removed) == (4, 8)
    assert await rig.ids_in(TARGET) == [each.id for each in ORDERS]


def fill_the_disk(monkeypatch: pytest.MonkeyPatch, *, after: int) -> None:
    """So many writes of records succeed."""
    written = 0

    def write(descriptor: int, data: bytes) -> int:
        nonlocal written
        written += 1
        if written > after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(descriptor, data)

    full = SimpleNamespace(**{**vars(os), "write": write})
    monkeypatch.setattr(record_module, "os", full)

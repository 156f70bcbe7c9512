"""Recording is cheap and harmless, whatever the disk does."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from pump.errors import ConfigurationError, StorageFailed
from pump.observability import vocabulary
from pump.stores.ledger import ParquetLedger, SqliteLedger
from pump.stores.ledger.buffered_ledger import BufferedLedger, Buffering
from pump.stores.ledger.rows import Row
from pump.testing.virtual_clock import VirtualClock

from .support import an_outcome, ids

SMALL = Buffering(max_waiting=10, close_within=timedelta(seconds=5))
PATIENCE_S = 2.0
"""For the clock: no disk is waited for here, and where one hangs, time is to pass soon."""


class FakeStore:
    """Keeps rows in memory; fails, or hangs, while it is told to."""

    care_every_s: float | None = None

    def __init__(self) -> None:
        self.batches: list[list[Row]] = []
        self.error: Exception | None = None
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.tries = 0
        self.cared = 0
        self.is_closed = False

    @property
    def rows(self) -> list[Row]:
        return [row for batch in self.batches for row in batch]

    def open(self) -> None:
        self._meet()

    def append(self, rows: Sequence[Row]) -> bool:
        self.tries += 1
        self.may_go_on.wait(30)
        self._meet()
        self.batches.append(list(rows))
        return len(self.rows) >= 5

    def care(self, now_s: float) -> None:
        self._meet()
        self.cared += 1

    def close(self, now_s: float) -> None:
        self.is_closed = True
        self._meet()

    def _meet(self) -> None:
        if self.error is not None:
            raise self.error


def a_ledger(store: FakeStore, buffering: Buffering = SMALL) -> BufferedLedger:
    return BufferedLedger("somewhere", lambda: store, buffering, detail=True)


def record(ledger: BufferedLedger, *numbers: int) -> None:
    for number in numbers:
        ledger.record(an_outcome(number))


async def test_when_rows_come_together_then_they_are_written_together_after_a_moment(
    clock: VirtualClock,
) -> None:
    store = FakeStore()
    ledger = a_ledger(store)
    await ledger.open("memory", clock)
    record(ledger, 1)
    await clock.advance(0.1)
    record(ledger, 2)
    await clock.advance(0.09)
    assert store.batches == []

    await clock.advance(0.02)

    assert [ids(batch) for batch in store.batches] == [["m-1", "m-2"]]
    await ledger.aclose()


async def test_when_nothing_comes_then_nothing_is_done(clock: VirtualClock) -> None:
    store = FakeStore()
    ledger = a_ledger(store)
    await ledger.open("memory", clock)

    assert clock.next_due_in_s() is None

    await ledger.aclose()
    assert (store.tries, store.is_closed) == (0, True)


async def test_when_a_row_is_written_then_its_time_is_when_it_came_not_when_it_was_written(
    clock: VirtualClock,
) -> None:
    store = FakeStore()
    ledger = a_ledger(store)
    await ledger.open("memory", clock)
    came_us = round(clock.time_s() * 1e6)
    record(ledger, 1)
    await clock.advance(5)

    assert [row.time for row in store.rows] == [came_us]
    await ledger.aclose()


async def test_when_flushed_then_what_was_recorded_is_written_at_once(clock: VirtualClock) -> None:
    store = FakeStore()
    ledger = a_ledger(store)
    await ledger.open("memory", clock)
    record(ledger, 1, 2)

    await ledger.flush()

    assert ids(store.rows) == ["m-1", "m-2"]
    await ledger.flush()
    await ledger.aclose()
    await ledger.flush()


async def test_when_closed_then_everything_is_written(clock: VirtualClock) -> None:
    store = FakeStore()
    ledger = a_ledger(store)
    await ledger.open("memory", clock)
    record(ledger, 1, 2, 3)

    await ledger.aclose()
    await ledger.aclose()

    assert ids(store.rows) == ["m-1", "m-2", "m-3"]
    assert ledger.dropped_count == 0


async def test_when_the_disk_fails_then_rows_wait_and_none_is_lost_or_doubled(
    clock: VirtualClock,
) -> None:
    store = FakeStore()
    ledger = a_ledger(store)
    await ledger.open("memory", clock)
    store.error = StorageFailed("somewhere", "the disk is full")
    record(ledger, 1, 2)
    await clock.advance(1)
    record(ledger, 3)
    await clock.advance(60)
    assert store.batches == []
    assert store.tries > 5

    store.error = None
    await clock.advance(10)

    assert ids(store.rows) == ["m-1", "m-2", "m-3"]
    assert ledger.dropped_count == 0
    await ledger.aclose()


async def test_when_there_is_no_more_room_then_rows_are_dropped_and_counted_and_it_goes_on(
    clock: VirtualClock,
) -> None:
    store = FakeStore()
    ledger = a_ledger(store)
    await ledger.open("memory", clock)
    store.error = StorageFailed("somewhere", "the disk is full")
    with capture_logs() as logs:
        record(ledger, *range(4))
        await clock.advance(1)
        record(ledger, *range(4, 30))
        assert (ledger.waiting_count, ledger.dropped_count) == (10, 20)
        store.error = None
        await clock.advance(10)
        record(ledger, 100)
        await clock.advance(1)

    assert ids(store.rows) == [*(f"m-{n}" for n in range(10)), "m-100"]
    dropped = [each for each in logs if each["event"] == vocabulary.ROWS_DROPPED]
    assert [(each["log_level"], each["dropped"]) for each in dropped] == [("error", 1)]
    assert "free or repair the disk" in dropped[0]["remedy"]
    assert [each for each in logs if each["event"] == vocabulary.LEDGER_RECOVERED]
    await ledger.aclose()


async def test_when_the_disk_fails_for_long_then_one_line_a_minute_says_so(
    clock: VirtualClock,
) -> None:
    store = FakeStore()
    ledger = a_ledger(store)
    await ledger.open("memory", clock)
    store.error = StorageFailed("somewhere", "the disk is full")
    record(ledger, 1)

    with capture_logs() as logs:
        await clock.advance(179)

    lines = [each for each in logs if each["event"] == vocabulary.LEDGER_UNWRITTEN]
    assert [(each["log_level"], each["error"]) for each in lines] == [
        ("warning", "somewhere: the disk is full")
    ] * 3
    store.error = None
    await ledger.aclose()


async def test_when_the_disk_hangs_then_recording_does_not(clock: VirtualClock) -> None:
    store = FakeStore()
    store.may_go_on.clear()
    ledger = a_ledger(store)
    await ledger.open("memory", clock)
    record(ledger, 1)
    await clock.advance(0.2)

    record(ledger, *range(2, 40))

    assert (ledger.waiting_count, ledger.dropped_count) == (10, 29)
    store.may_go_on.set()
    await ledger.aclose()
    assert len(store.rows) == 10


async def test_when_the_disk_hangs_then_closing_gives_up_after_a_while(clock: VirtualClock) -> None:
    store = FakeStore()
    store.may_go_on.clear()
    ledger = a_ledger(store)
    await ledger.open("memory", clock)
    record(ledger, 1, 2)
    with capture_logs() as logs:
        closing = asyncio.create_task(ledger.aclose())
        await clock.advance(4.9)
        assert not closing.done()
        await clock.advance(0.2)
        await closing

    [line] = logs
    assert (line["event"], line["count"]) == (vocabulary.LEDGER_UNFINISHED, 2)
    assert ledger.dropped_count == 2
    store.may_go_on.set()


async def test_when_the_disk_comes_back_while_closing_then_everything_is_written(
    clock: VirtualClock,
) -> None:
    store = FakeStore()
    ledger = a_ledger(store)
    await ledger.open("memory", clock)
    store.error = StorageFailed("somewhere", "the disk is full")
    record(ledger, 1)
    await clock.advance(60)
    closing = asyncio.create_task(ledger.aclose())
    await clock.advance(2)
    assert not closing.done()
    store.error = None
    await clock.advance(1)

    await closing
    assert ids(store.rows) == ["m-1"]
    assert store.is_closed


async def test_when_rows_cannot_be_stored_at_all_then_they_are_dropped_and_the_next_are_kept(
    clock: VirtualClock,
) -> None:
    store = FakeStore()
    ledger = a_ledger(store)
    await ledger.open("memory", clock)
    store.error = OverflowError("a number of 64 bits")
    record(ledger, 1)
    with capture_logs() as logs:
        await clock.advance(1)
    store.error = None
    record(ledger, 2)
    await clock.advance(1)

    assert ids(store.rows) == ["m-2"]
    assert ledger.dropped_count == 1
    assert [each["event"] for each in logs] == [vocabulary.ROWS_REFUSED]
    await ledger.aclose()


async def test_when_the_store_asks_for_care_then_it_gets_it_and_else_now_and_then(
    clock: VirtualClock,
) -> None:
    store = FakeStore()
    store.care_every_s = 60.0
    ledger = a_ledger(store)
    await ledger.open("memory", clock)
    await clock.advance(1)
    assert store.cared == 1
    record(ledger, *range(5))
    await clock.advance(1)
    assert store.cared == 2

    await clock.advance(60)

    assert store.cared == 3
    await ledger.aclose()


async def test_when_care_fails_then_it_is_tried_again_and_rows_are_written_meanwhile(
    clock: VirtualClock,
) -> None:
    store = FakeStore()
    store.care_every_s = 60.0
    ledger = a_ledger(store)
    await ledger.open("memory", clock)
    store.care = _failing  # type: ignore[method-assign]
    with capture_logs() as logs:
        await clock.advance(20)
        record(ledger, 1)
        await clock.advance(20)

    assert ids(store.rows) == ["m-1"]
    assert [each["event"] for each in logs] == [vocabulary.LEDGER_UNROLLED]
    await ledger.aclose()


def _failing(now_s: float) -> None:
    raise StorageFailed("somewhere", "cannot be written")


async def test_when_opening_fails_then_it_says_why_and_may_be_tried_again(
    clock: VirtualClock,
) -> None:
    store = FakeStore()
    store.error = StorageFailed("somewhere", "is another program's")
    ledger = a_ledger(store)
    with pytest.raises(StorageFailed, match="another program's"):
        await ledger.open("memory", clock)
    record(ledger, 1)

    store.error = None
    await ledger.open("memory", clock)
    record(ledger, 2)
    await ledger.aclose()

    assert ids(store.rows) == ["m-2"]


async def test_when_closing_the_store_fails_then_the_app_does_not(clock: VirtualClock) -> None:
    store = FakeStore()
    ledger = a_ledger(store)
    await ledger.open("memory", clock)
    store.error = RuntimeError("what now")

    with capture_logs() as logs:
        await ledger.aclose()

    assert [each["event"] for each in logs] == [vocabulary.LEDGER_UNFINISHED]


async def test_when_it_is_open_already_then_a_second_app_is_told(clock: VirtualClock) -> None:
    ledger = a_ledger(FakeStore())
    await ledger.open("memory", clock)

    with pytest.raises(ConfigurationError, match="open already"):
        await ledger.open("memory", clock)

    await ledger.aclose()


async def test_when_nothing_is_open_then_recording_does_no_harm() -> None:
    ledger = a_ledger(FakeStore())

    record(ledger, 1)

    assert ledger.dropped_count == 1


@pytest.mark.parametrize(
    "options",
    [
        {"flush_every": timedelta(0)},
        {"max_waiting": 0},
        {"close_within": timedelta(seconds=-1)},
    ],
)
def test_when_buffering_makes_no_sense_then_it_is_refused(options: dict[str, Any]) -> None:
    """R56."""
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        Buffering(**options)


def test_when_a_closed_ledger_is_pickled_then_the_copy_is_as_good(tmp_path: Path) -> None:
    for ledger in (SqliteLedger(tmp_path / "l.db"), ParquetLedger(tmp_path / "l")):
        copy = pickle.loads(pickle.dumps(ledger))

        assert repr(copy) == repr(ledger)

"""Whenever the process dies, the next one brings it to the right end."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from pump.redrive.folder import lease_for
from pump.report.duckdb_engine import duckdb_engine
from pump.report.job import ReportOptions, run_report
from pump.stores.ledger import SqliteLedger
from pump.testing.virtual_clock import VirtualClock

from .rig import DEAD, TARGET, Killed, Redrive, Rig, a_dead_letter, a_plan, through_time

ORDERS = [a_dead_letter(n) for n in range(20)]
OTHERS = [a_dead_letter(n, type="Payment") for n in range(20, 30)]
LETTERS = [*ORDERS[:10], *OTHERS, *ORDERS[10:]]
MOMENTS = [
    ("before", "receive"),
    ("after", "receive"),
    ("before", "send"),  # recorded as begun
    ("after", "send"),  # sent, and not recorded
    ("before", "ack"),  # recorded, and not removed
    ("after", "ack"),  # removed, and not recorded as such
    ("before", "hand back"),
    ("after", "hand back"),
]


@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.parametrize(("when", "operation"), MOMENTS)
async def test_when_it_dies_at_any_moment_then_the_next_run_leaves_each_message_once(
    clock: VirtualClock, folder: Path, when: str, operation: str, nth: int
) -> None:
    """R78: on a target that de-duplicates nothing is lost and nothing is there twice."""
    rig = Rig(clock)
    await rig.fill(*LETTERS)
    rig.kill_at(when, operation, nth if operation in ("send", "ack") else 1)

    with pytest.raises(Killed):
        await through_time(clock, Redrive(rig, folder).run())
    again = Redrive(rig.next_life(), folder)
    await through_time(clock, again.run())

    await clock.advance(lease_for(0) + 1)
    assert await rig.ids_in(TARGET) == [letter.id for letter in ORDERS]
    assert await rig.ids_in(DEAD) == [letter.id for letter in OTHERS]
    assert again.left == 0
    # Only there the record does not know that they are gone.
    assert bool(again.unremoved) == ((when, operation) == ("after", "ack"))


@pytest.mark.parametrize(("when", "operation"), MOMENTS)
async def test_when_the_target_forgets_then_a_death_repeats_one_batch_at_most(
    clock: VirtualClock, folder: Path, when: str, operation: str
) -> None:
    """R78: on other targets none is lost, and what is repeated is one batch, and said."""
    rig = Rig(clock)
    rig.forgets = True
    await rig.fill(*LETTERS)
    rig.kill_at(when, operation, 2 if operation in ("send", "ack") else 1)

    with pytest.raises(Killed):
        await through_time(clock, Redrive(rig, folder).run())
    counts = await through_time(clock, Redrive(rig.next_life(), folder).run())

    await clock.advance(lease_for(0) + 1)
    ids = Counter(await rig.ids_in(TARGET))
    repeated = sum(ids.values()) - len(ids)
    assert set(ids) == {letter.id for letter in ORDERS}
    assert repeated == (4 if (when, operation) == ("after", "send") else 0)
    assert counts.repeated == (4 if operation == "send" else 0)
    assert await rig.ids_in(DEAD) == [letter.id for letter in OTHERS]


async def test_when_every_run_dies_after_its_first_batch_then_they_still_come_to_the_end(
    clock: VirtualClock, folder: Path
) -> None:
    """R78: each life does a batch; together they do it all, once."""
    rig = Rig(clock)
    await rig.fill(*LETTERS)
    lives = 0
    while await rig.ids_in(TARGET) != [letter.id for letter in ORDERS]:
        rig = rig.next_life()
        rig.kill_at("after", "ack")
        lives += 1
        assert lives < 20
        with pytest.raises(Killed):
            await through_time(clock, Redrive(rig, folder).run())
        await clock.advance(lease_for(0) + 1)

    await through_time(clock, Redrive(rig.next_life(), folder).run())

    await clock.advance(lease_for(0) + 1)
    assert await rig.ids_in(TARGET) == [letter.id for letter in ORDERS]
    assert await rig.ids_in(DEAD) == [letter.id for letter in OTHERS]


async def test_when_it_died_between_send_and_removal_then_another_selection_only_removes(
    clock: VirtualClock, folder: Path
) -> None:
    """R78: what one run has sent, no other run of this queue sends, whatever it selects."""
    rig = Rig(clock)
    rig.forgets = True
    await rig.fill(*LETTERS)
    rig.kill_at("before", "ack")
    with pytest.raises(Killed):
        await through_time(clock, Redrive(rig, folder, batch=20).run())
    await clock.advance(lease_for(0) + 1)

    plan = a_plan("true")
    await through_time(clock, Redrive(rig.next_life(), folder, plan).run())

    assert await rig.ids_in(TARGET) == [letter.id for letter in [*ORDERS, *OTHERS]]
    assert await rig.ids_in(DEAD) == []


async def test_when_it_died_between_row_and_removal_then_a_report_counts_the_redrive_once(
    clock: VirtualClock, folder: Path, tmp_path: Path
) -> None:
    """R78: each is recorded in the ledger; who removes what was sent before writes the same row."""
    rig = Rig(clock, has_peek=False)
    await rig.fill(*LETTERS)
    ledger = SqliteLedger(tmp_path / "ledger.db")
    rig.kill_at("before", "ack", 2)
    with pytest.raises(Killed):
        await through_time(clock, Redrive(rig, folder, ledger=ledger).run())
    await clock.advance(lease_for(0) + 1)

    plan = a_plan("true")
    await through_time(clock, Redrive(rig.next_life(), folder, plan, ledger=ledger).run())

    options = ReportOptions(ledger=tmp_path / "ledger.db", out=tmp_path / "report")
    totals = (await asyncio.to_thread(run_report, options, duckdb_engine)).totals
    assert (totals["rows"], totals["redriven"]) == (len(LETTERS) + 4, len(LETTERS))

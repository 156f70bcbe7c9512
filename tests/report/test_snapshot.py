"""The dead letters that a report sees."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import structlog.testing

from pump.errors import Throttled
from pump.report.snapshot import take_snapshot
from pump.testing.virtual_clock import VirtualClock
from tests.redrive.rig import DEAD, Rig, a_dead_letter, through_time

LETTERS = [a_dead_letter(n) for n in range(12)]


async def a_rig(clock: VirtualClock, *, most_in_flight: int) -> Rig:
    """A broker where a look is a receive, and that gives no more while so many are held."""
    rig = Rig(clock, receive_batch=4, has_peek=False)
    await rig.fill(*LETTERS)

    async def over_limit() -> None:
        if await rig.in_flight(DEAD) >= most_in_flight:
            raise Throttled(DEAD)

    rig.before["receive"] = over_limit
    return rig


async def test_when_the_broker_shows_no_more_then_the_report_has_what_was_seen_and_says_so(
    tmp_path: Path,
) -> None:
    """R78: 120,000 in flight are the most that SQS allows; they are handed back, too."""
    clock = VirtualClock()
    rig = await a_rig(clock, most_in_flight=8)
    path = tmp_path / "snapshot.parquet"

    with structlog.testing.capture_logs() as lines:
        count = await through_time(clock, take_snapshot(rig, [DEAD], path, clock=clock))

    assert count == 8
    table = await asyncio.to_thread(pq.read_table, path)
    assert table["message_id"].to_pylist() == [each.id for each in LETTERS[:8]]
    assert [(line["event"], line["queue"], line["count"]) for line in lines] == [
        ("receive.failed", DEAD, 8)
    ]
    assert await rig.in_flight(DEAD) == 0


async def test_when_the_broker_shows_nothing_then_it_is_not_taken_for_an_empty_queue(
    tmp_path: Path,
) -> None:
    """R78: a queue that nobody could look into is an error."""
    clock = VirtualClock()
    rig = await a_rig(clock, most_in_flight=0)

    with pytest.raises(Throttled):
        await through_time(
            clock, take_snapshot(rig, [DEAD], tmp_path / "snapshot.parquet", clock=clock)
        )

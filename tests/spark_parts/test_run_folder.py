"""The folder through which a driver and its tasks talk, and stops on their way to the driver."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from pump.errors import StorageFailed
from pump.spark.run.plan import HOME, run_folder
from pump.spark.run.running import Stops, run_stoppable


def test_when_a_run_is_over_then_its_folder_is_gone(tmp_path: Path) -> None:
    """R78: nothing is left behind."""
    with run_folder(tmp_path) as folder:
        at_first = folder.exists, folder.is_stop_asked
        folder.ask_stop()
        then = folder.exists, folder.is_stop_asked

    assert (at_first, then) == ((True, False), (True, True))
    assert (folder.exists, folder.is_stop_asked) == (False, True)
    assert list((tmp_path / HOME).iterdir()) == []


def test_when_two_drivers_run_then_neither_touches_the_others_folder(tmp_path: Path) -> None:
    """R78: two runs at once, on one ledger."""
    with run_folder(tmp_path) as first, run_folder(tmp_path) as second:
        first.ask_stop()

        assert first.exists
        assert not second.is_stop_asked


def test_when_a_driver_was_killed_then_the_next_one_removes_its_folder(tmp_path: Path) -> None:
    """R78: a lock that nobody holds is a dead driver's."""
    left = tmp_path / HOME / "left"
    left.mkdir(parents=True)
    (left / "driver.lock").touch()
    (left / "stop").touch()

    with run_folder(tmp_path):
        assert not left.exists()


def test_when_the_ledger_cannot_be_written_then_that_is_said(tmp_path: Path) -> None:
    """R78: with the path and the remedy."""
    (tmp_path / "file").touch()

    with (
        pytest.raises(StorageFailed, match="something else has that name"),
        run_folder(tmp_path / "file"),
    ):
        pass


def test_when_a_signal_comes_then_the_coroutine_is_asked_to_stop() -> None:
    """R78: SIGTERM and Ctrl-C are stops, also where a loop runs already."""
    before = signal.getsignal(signal.SIGTERM)

    async def work(stops: Stops) -> int:
        asked: asyncio.Queue[None] = asyncio.Queue()
        with stops.told_to(lambda: asked.put_nowait(None)):
            os.kill(os.getpid(), signal.SIGTERM)
            await asked.get()
            os.kill(os.getpid(), signal.SIGINT)
            await asked.get()
        return 2

    async def notebook() -> int:
        return run_stoppable(work)

    assert run_stoppable(work) == 2
    assert asyncio.run(notebook()) == 2
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    "error", [StorageFailed("ledger", "full"), asyncio.CancelledError(), SystemExit(3)]
)
def test_when_the_coroutine_fails_then_so_does_the_call(error: BaseException) -> None:
    """R78: whatever it fails with arrives where it is waited for."""

    async def work(stops: Stops) -> None:
        raise error

    with pytest.raises(type(error)):
        run_stoppable(work)


def test_when_stops_come_early_or_late_then_early_ones_are_told_and_late_ones_do_no_harm() -> None:
    """R78: a signal while Spark starts is not forgotten."""
    told: list[int] = []

    async def work() -> None:
        stops = Stops()
        stops.ask()
        stops.ask()
        with stops.told_to(lambda: told.append(1)):
            pass
        stops.ask()

    asyncio.run(work())

    assert told == [1, 1]

"""The record of handler times: a running pump leaves it, and nothing depends on it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from pump import App, Command, Subscription
from pump.dispatcher import Recorder
from pump.errors import StorageFailed
from pump.events import Event, OutcomeEvent
from pump.findings import HandlerTimes
from pump.loop.processing import DeliveryResult
from pump.loop.reporting import PumpStats
from pump.observability import vocabulary
from pump.outcome import ACK
from pump.stores.handler_times import HandlerTimesFile
from pump.stores.spill import MemorySpill, SqliteSpill
from pump.testing import Harness
from pump.testing.builders import a_delivery
from pump.testing.virtual_clock import EPOCH_S, VirtualClock


class Greet(Command):
    """Say hello."""

    name: str


def some_times(count: int = 3) -> HandlerTimes:
    return HandlerTimes(
        count=count, mean_s=0.5, p50_s=0.4, p99_s=0.9, max_s=0.9, lost_count=1, observed_at_s=1.5
    )


def handled(stats: PumpStats, run_s: float) -> None:
    stats.run_times.observe([DeliveryResult(a_delivery(), ACK, ACK, run_s)])


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.fixture
def file(tmp_path: Path) -> HandlerTimesFile:
    return HandlerTimesFile(tmp_path / "data" / "handler-times.json")


# -- the file -----------------------------------------------------------------------------------


async def test_when_times_are_written_then_they_are_read_back(file: HandlerTimesFile) -> None:
    await file.write({"orders": some_times()})

    assert await file.read() == {"orders": some_times()}
    assert names_in(file.path.parent) == [file.path.name]


async def test_when_another_subscription_is_written_then_the_first_is_kept(
    file: HandlerTimesFile,
) -> None:
    await file.write({"orders": some_times(1), "bills": some_times(2)})

    await file.write({"orders": some_times(7)})

    assert await file.read() == {"orders": some_times(7), "bills": some_times(2)}


async def test_when_many_write_at_once_then_a_whole_record_is_left(file: HandlerTimesFile) -> None:
    await asyncio.gather(*(file.write({"orders": some_times(n)}) for n in range(20)))

    assert (await file.read())["orders"].count in range(20)
    assert names_in(file.path.parent) == [file.path.name]


async def test_when_nothing_was_written_then_nothing_is_read_and_nothing_made(
    file: HandlerTimesFile,
) -> None:
    assert await file.read() == {}
    assert not file.path.parent.exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"version": 1}',
        '{"version": 2, "subscriptions": {}}',
        '{"version": 1, "subscriptions": {"orders": {"count": "many"}}}',
    ],
)
async def test_when_the_record_cannot_be_understood_then_it_is_as_good_as_none(
    file: HandlerTimesFile, text: str
) -> None:
    file.path.parent.mkdir()
    file.path.write_text(text)

    assert await file.read() == {}

    await file.write({"orders": some_times()})
    assert await file.read() == {"orders": some_times()}


async def test_when_the_folder_cannot_be_made_then_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file, not a folder")
    file = HandlerTimesFile(tmp_path / "data" / "handler-times.json")

    with pytest.raises(StorageFailed, match=r"handler-times\.json"):
        await file.write({"orders": some_times()})


def test_the_record_is_in_the_folder_of_the_spill(tmp_path: Path) -> None:
    beside = HandlerTimesFile.beside(SqliteSpill(tmp_path / "spill.db"))

    assert beside is not None
    assert beside.path == tmp_path / "handler-times.json"
    assert HandlerTimesFile.beside(MemorySpill()) is None


# -- the recorder -------------------------------------------------------------------------------


class PaperFile(HandlerTimesFile):
    """A file that keeps every version, and fails while it is told to."""

    def __init__(self) -> None:
        super().__init__("nowhere")
        self.written: list[dict[str, HandlerTimes]] = []
        self.attempt_count = 0
        self.is_broken = False
        self.hangs = False

    async def write(self, times: Mapping[str, HandlerTimes]) -> None:
        self.attempt_count += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.is_broken:
            raise StorageFailed("nowhere", "no space left")
        self.written.append(dict(times))


class Bench:
    """A recorder of one subscription, on virtual time."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.file = PaperFile()
        self.stats = PumpStats()
        self.running = asyncio.create_task(
            Recorder(self.file, {"orders": self.stats}, self.clock).run()
        )

    @property
    def counts(self) -> list[int]:
        return [each["orders"].count for each in self.file.written]

    async def stop(self) -> None:
        self.running.cancel()
        await asyncio.wait([self.running])
        assert self.running.cancelled()


@pytest.fixture
async def bench() -> Bench:
    return Bench()


async def test_while_a_pump_runs_then_its_times_are_written_every_minute(bench: Bench) -> None:
    handled(bench.stats, 0.5)
    await bench.clock.advance(60)
    handled(bench.stats, 2.0)
    await bench.clock.advance(60)
    await bench.stop()

    assert bench.counts == [1, 2]
    assert bench.file.written[1]["orders"].max_s == 2.0
    assert bench.file.written[1]["orders"].observed_at_s == EPOCH_S + 120


async def test_when_nothing_has_changed_then_nothing_is_written(bench: Bench) -> None:
    await bench.clock.advance(60)
    handled(bench.stats, 0.5)
    await bench.clock.advance(600)
    await bench.stop()

    assert bench.counts == [1]


async def test_when_a_lease_was_lost_then_that_is_written_even_if_nothing_was_handled(
    bench: Bench,
) -> None:
    bench.stats.leases_lost = 1
    await bench.clock.advance(60)
    await bench.stop()

    [written] = bench.file.written
    assert (written["orders"].count, written["orders"].lost_count) == (0, 1)


async def test_when_it_is_stopped_then_the_last_times_are_written(bench: Bench) -> None:
    """Law 6: and the cancellation goes on."""
    await bench.clock.settle()
    handled(bench.stats, 0.5)

    await bench.stop()

    assert bench.counts == [1]


async def test_when_it_cannot_be_written_then_that_is_said_once_and_tried_again(
    bench: Bench,
) -> None:
    bench.file.is_broken = True
    handled(bench.stats, 0.5)

    with capture_logs() as lines:
        await bench.clock.advance(180)
    bench.file.is_broken = False
    await bench.clock.advance(60)
    await bench.stop()

    assert [line["event"] for line in lines] == [vocabulary.HANDLER_TIMES_UNRECORDED]
    assert bench.file.attempt_count == 4
    assert bench.counts == [1]


async def test_when_the_disk_hangs_then_the_end_waits_for_it_no_longer_than_seconds(
    bench: Bench,
) -> None:
    await bench.clock.settle()
    bench.file.hangs = True
    handled(bench.stats, 0.5)

    bench.running.cancel()
    await bench.clock.advance(5)

    assert bench.running.done()


# -- the app ------------------------------------------------------------------------------------


def an_app(folder: Path, gateway: str) -> App:
    app = App(gateway, spill=folder / "data" / "spill.db")
    app.register(Greet, lambda greet: None)
    app.subscribe(
        Subscription(
            queue="greetings",
            request=Greet,
            dead_letter_queue="dead",
            wait=timedelta(milliseconds=50),
        )
    )
    return app


async def pump_some(app: App, count: int) -> list[Event]:
    """Handle so many messages, and return what observers were told."""
    events: list[Event] = []
    app.observe(events.append)
    async with app, app.pumping() as dispatcher:
        for number in range(count):
            await app.post(Greet(name=str(number)))
        await dispatcher.wait_until_empty()
    return events


async def test_when_a_pump_drains_then_its_handler_times_are_on_record(tmp_path: Path) -> None:
    app = an_app(tmp_path, f"local://{tmp_path}/queues")

    events = await pump_some(app, 3)

    settled = [event for event in events if isinstance(event, OutcomeEvent)]
    times = (await HandlerTimesFile(tmp_path / "data" / "handler-times.json").read())["greetings"]
    assert (times.count, times.lost_count) == (len(settled), 0), settled
    assert times.max_s == max(event.run_s for event in settled)
    assert 0 < times.p50_s <= times.p99_s <= times.max_s


async def test_when_the_record_cannot_be_written_then_every_message_is_handled_all_the_same(
    tmp_path: Path,
) -> None:
    (tmp_path / "data").write_text("a file, not a folder")
    app = an_app(tmp_path, f"local://{tmp_path}/queues")

    with capture_logs() as lines:
        await pump_some(app, 3)

    told = [line for line in lines if line["event"] == vocabulary.HANDLER_TIMES_UNRECORDED]
    assert [line["log_level"] for line in told] == ["warning"]
    assert any(line["event"] == vocabulary.PUMP_DRAINED for line in lines)


async def test_when_nobody_else_can_reach_the_queues_then_nothing_is_recorded(
    tmp_path: Path,
) -> None:
    await pump_some(an_app(tmp_path, "memory://"), 3)

    assert names_in(tmp_path) == []


async def test_when_an_app_is_tested_in_the_harness_then_nothing_is_recorded(
    tmp_path: Path,
) -> None:
    async with Harness(an_app(tmp_path, f"local://{tmp_path}/queues")) as harness:
        await harness.send(Greet(name="Ada"))
        await harness.run_until_idle()

    assert names_in(tmp_path) == []

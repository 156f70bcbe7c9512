"""A row for every outcome, on the memory and the local gateway (R23, R24)."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pump import App, Backoff, Command, InvalidMessage, RejectMessage, Subscription, hybrid
from pump.errors import StorageFailed
from pump.message import Message
from pump.stores.ledger import ParquetLedger, PostgresLedger, SqliteLedger
from pump.stores.ledger.buffered_ledger import BufferedLedger
from pump.stores.ledger.rows import Row
from pump.stores.spill import MemorySpill
from pump.testing import Harness
from pump.testing.virtual_clock import VirtualClock

from .support import journal_rows, parquet_rows, postgres_rows, sqlite_rows

GATEWAYS = ["memory", "local"]
LEDGERS = ["sqlite", "parquet", pytest.param("postgres", marks=pytest.mark.broker)]
BACKOFF = Backoff(initial=timedelta(seconds=1), jitter=0)


class Work(Command):
    what: str


def app_with(gateway: str, ledger: BufferedLedger, clock: VirtualClock, folder: Path) -> App:
    url = "memory://" if gateway == "memory" else f"local://{folder}/queues"
    return App(url, ledger=ledger, clock=clock, spill=MemorySpill())


def ledger_of(kind: str, folder: Path) -> BufferedLedger:
    match kind:
        case "sqlite":
            return SqliteLedger(folder / "l.db")
        case "parquet":
            return ParquetLedger(folder / "l")
        case url:
            return PostgresLedger(url)


def rows_of(kind: str, folder: Path) -> list[Row]:
    match kind:
        case "sqlite":
            rows = sqlite_rows(folder / "l.db")
        case "parquet":
            rows = parquet_rows(folder / "l")
        case url:
            rows = postgres_rows(url)
    return sorted(rows, key=lambda row: row.time)


@pytest.fixture(params=LEDGERS)
def kind(request: pytest.FixtureRequest) -> str:
    """A kind of ledger, or the URL of one."""
    if request.param == "postgres":
        url: str = request.getfixturevalue("postgres_schema")
        return url
    return str(request.param)


async def pump_one(app: App, clock: VirtualClock, message: Message, **subscription: Any) -> None:
    @app.handler
    async def handle(work: Work) -> None:
        match work.what:
            case "reject":
                raise RejectMessage("told to")
            case "refuse":
                raise InvalidMessage("not like this")
            case "fail":
                raise ValueError("boom")

    app.subscribe(Subscription(queue="orders", request=Work, **subscription))
    async with app, app.pumping():
        await app.post(message, queue="orders")
        await clock.advance(10)


@pytest.mark.parametrize("gateway", GATEWAYS)
@pytest.mark.parametrize(
    ("body", "options", "expected"),
    [
        (b'{"what": "ok"}', {}, [("processed", 1, None, None, None)]),
        (
            b'{"what": "fail"}',
            {"failure": hybrid(1, backoff=BACKOFF), "dead_letter_queue": "dead"},
            [
                ("retrying", 1, None, None, "ValueError: boom"),
                ("dead-lettered", 2, "DeliveryError", "dead", "ValueError: boom"),
            ],
        ),
        (
            b'{"what": "reject"}',
            {"dead_letter_queue": "dead"},
            [("dead-lettered", 1, "DeliveryError", "dead", "told to")],
        ),
        (
            b'{"what": "refuse"}',
            {"dead_letter_queue": "dead", "invalid_queue": "invalid"},
            [("dead-lettered", 1, "Unacceptable", "invalid", "not like this")],
        ),
        (b'{"what": "reject"}', {}, [("discarded", 1, "DeliveryError", None, "told to")]),
    ],
    ids=["processed", "retried", "dead-lettered", "invalid", "discarded"],
)
async def test_when_a_message_ends_then_the_ledger_tells_how(
    kind: str,
    gateway: str,
    body: bytes,
    options: dict[str, Any],
    expected: list[tuple[str, int, str | None, str | None, str | None]],
    tmp_path: Path,
    clock: VirtualClock,
) -> None:
    """R23, R24: status, attempts, reason, destination and detail of each delivery."""
    app = app_with(gateway, ledger_of(kind, tmp_path), clock, tmp_path)
    message = Message(body=body, id="m-1", type="Work", created_at_s=clock.time_s() - 5)

    await pump_one(app, clock, message, **options)

    rows = rows_of(kind, tmp_path)
    told = [(r.status, r.attempts, r.reason, r.destination, r.detail) for r in rows]
    assert told == expected
    raised = {"fail": "ValueError", "reject": "RejectMessage", "refuse": "InvalidMessage"}
    for row in rows:
        assert row.error_type == raised.get(json.loads(body)["what"])
        assert (row.message_id, row.queue, row.subscription) == ("m-1", "orders", "orders")
        assert (row.gateway, row.version) == (gateway, 1)
        assert row.age_s is not None
        assert row.age_s >= 5
        assert row.pump.count(":") >= 2


@pytest.mark.parametrize("gateway", GATEWAYS)
async def test_when_a_body_cannot_be_read_then_the_ledger_has_it_too(
    gateway: str, tmp_path: Path, clock: VirtualClock
) -> None:
    """R24: what no handler ever saw."""
    app = app_with(gateway, SqliteLedger(tmp_path / "l.db"), clock, tmp_path)

    await pump_one(app, clock, Message(body=b"{oops", type="Work"), dead_letter_queue="dead")

    [row] = rows_of("sqlite", tmp_path)
    assert (row.status, row.reason, row.destination) == ("dead-lettered", "Unacceptable", "dead")


async def test_when_a_lease_is_lost_then_the_ledger_has_that_and_how_it_ended(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """R24, and that the status tells."""
    app = app_with("memory", SqliteLedger(tmp_path / "l.db"), clock, tmp_path)
    attempts: list[str] = []

    @app.handler
    async def handle(work: Work) -> None:
        attempts.append(work.what)
        if len(attempts) == 1:
            await clock.sleep(60)

    app.subscribe(
        Subscription(queue="orders", request=Work, lease=timedelta(seconds=10), renew=False)
    )
    async with app, app.pumping():
        await app.post(Work("late"))
        await clock.advance(100)

    told = {(row.status, row.attempts) for row in rows_of("sqlite", tmp_path)}
    assert told == {("lease-lost", 1), ("processed", 2)}


async def test_when_details_may_not_be_kept_then_nothing_of_the_body_is_in_the_file(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """R61: an error's text may quote what it was about."""
    ledger = SqliteLedger(tmp_path / "l.db", detail=False)
    app = app_with("memory", ledger, clock, tmp_path)

    await pump_one(app, clock, Message(body=b'{"what": "reject"}', type="Work"))

    [row] = rows_of("sqlite", tmp_path)
    assert row.status == "discarded"
    assert b"told to" not in (tmp_path / "l.db").read_bytes()


async def test_when_the_ledger_cannot_be_opened_then_the_app_says_so_at_once(
    tmp_path: Path, clock: VirtualClock
) -> None:
    (tmp_path / "l.db").write_text("dear diary " * 100)
    app = app_with("memory", SqliteLedger(tmp_path / "l.db"), clock, tmp_path)

    with pytest.raises(StorageFailed, match=r"l\.db: is no SQLite database"):
        async with app:
            pass

    assert (tmp_path / "l.db").read_text() == "dear diary " * 100


async def test_when_the_disk_fails_then_every_message_ends_as_it_would_without_a_ledger(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """The ledger changes no outcome."""
    ledger = ParquetLedger(tmp_path / "l")
    app = app_with("memory", ledger, clock, tmp_path)
    told: list[object] = []
    app.observe(told.append)

    @app.handler
    async def handle(work: Work) -> None:
        await asyncio.to_thread(spoil, tmp_path / "l" / "_journal")

    app.subscribe(Subscription(queue="orders", request=Work))
    async with app, app.pumping():
        await app.post(Work("ok"))
        await clock.advance(1)
        assert await _depth(app) == 0
        (tmp_path / "l" / "_journal").unlink()
        await clock.advance(5)

    assert [event.status for event in told if hasattr(event, "status")] == ["processed"]
    assert [row.status for row in parquet_rows(tmp_path / "l")] == ["processed"]
    assert journal_rows(tmp_path / "l") == []


def spoil(journals: Path) -> None:
    journals.rename(journals.with_name("away"))
    journals.write_text("in the way")


async def _depth(app: App) -> int:
    return sum(each.visible + each.in_flight for each in await app.admin.queues())


async def test_when_another_ledger_is_named_then_only_that_one_is_written(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """`pump run --ledger`."""
    own, other = SqliteLedger(tmp_path / "own.db"), SqliteLedger(tmp_path / "other.db")
    app = app_with("memory", own, clock, tmp_path)
    app.override(ledger=other)

    await pump_one(app, clock, Message(body=b'{"what": "ok"}', type="Work"))

    assert not (tmp_path / "own.db").exists()
    assert [row.status for row in sqlite_rows(tmp_path / "other.db")] == ["processed"]


async def test_when_an_app_is_tested_in_its_harness_then_its_ledger_is_left_alone(
    tmp_path: Path,
) -> None:
    app = App("local://", ledger=SqliteLedger(tmp_path / "own.db"))

    @app.handler
    async def handle(work: Work) -> None: ...

    app.subscribe(Subscription(queue="orders", request=Work))
    async with Harness(app) as harness:
        await harness.send(Work("ok"))
        await harness.run_until_idle()
        assert harness.statuses == ["processed"]

    assert not (tmp_path / "own.db").exists()

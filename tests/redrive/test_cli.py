"""`pump redrive` on the embedded queues of a folder."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pump import App, MakeChannels
from pump.cli.root import cli
from pump.redrive.folder import Plan, RedriveFolder, opened
from pump.subscription import QueueSpec

from .rig import DEAD, TARGET, a_dead_letter

Pump = Callable[..., Result]
WHERE = "type = 'Order'"


@pytest.fixture
def pump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pump:
    """`pump(...)` in a folder with 6 orders and 4 payments that were rejected."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PUMP_GATEWAY", raising=False)
    runner = CliRunner()

    async def fill() -> None:
        async with App("local://") as app:
            for queue in (DEAD, TARGET):
                await app.admin.ensure(QueueSpec(name=queue), MakeChannels.CREATE)
            letters = [a_dead_letter(n, type="Order" if n < 6 else "Payment") for n in range(10)]
            await app.post_all(letters, queue=DEAD)

    asyncio.run(fill())
    return lambda *arguments: runner.invoke(cli, arguments, prog_name="pump")


def ids_in(queue: str) -> list[str]:
    async def work() -> list[str]:
        async with App("local://") as app:
            return sorted(each.id for each in await app.admin.peek(queue, max_count=100))

    return asyncio.run(work())


def runs() -> list[Path]:
    return sorted(Path(".pumphouse/redrive").glob("*/*/"))


def test_when_it_is_a_dry_run_then_it_shows_what_would_be_sent_and_touches_nothing(
    pump: Pump,
) -> None:
    """R78: counts by type and reason, the times, and examples."""
    result = pump("redrive", DEAD, "--to", TARGET, "--where", "id <> 'm-9'", "--dry-run")

    assert result.exit_code == 0, result.stderr
    assert "Would send 9 of 10 dead letter(s) in 'orders-dead' to 'orders'." in result.stdout
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["Order", "DeliveryError", "6"] in lines
    assert ["Payment", "DeliveryError", "3"] in lines
    assert "from 2026-11-01 00:00:00 to 2026-11-01 00:00:08 UTC" in result.stdout
    assert "m-0" in result.stdout
    assert (len(ids_in(DEAD)), ids_in(TARGET), runs()) == (10, [], [])
    assert not Path(".pumphouse/ledger.db").exists()


def test_when_it_is_a_dry_run_in_json_then_a_program_can_read_it(pump: Pump) -> None:
    """R78."""
    result = pump("redrive", DEAD, "--to", TARGET, "--where", WHERE, "--dry-run", "--json")

    document = json.loads(result.stdout)
    assert (document["seen"], document["would_send"]) == (10, 6)
    assert document["groups"] == [{"type": "Order", "reason": "DeliveryError", "count": 6}]
    assert document["examples"][0]["id"] == "m-0"


@pytest.mark.parametrize("where", [WHERE, "TRUE"])
def test_when_a_dry_run_was_killed_then_the_next_run_looks_anew_and_leaves_nothing_of_it(
    pump: Pump, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """R78: a look of yesterday decides nothing, and no bodies stay on the disk."""
    with monkeypatch.context() as killed:
        killed.setattr(RedriveFolder, "remove", lambda self: None)
        pump("redrive", DEAD, "--to", TARGET, "--where", WHERE, "--dry-run")
    [left] = runs()

    async def reject_another() -> None:
        async with App("local://") as app:
            await app.post_all([a_dead_letter(10)], queue=DEAD)

    asyncio.run(reject_another())
    result = pump("redrive", DEAD, "--to", TARGET, "--where", where)

    assert result.exit_code == 0, result.stderr
    assert "interrupted" not in result.stdout
    assert "m-10" in ids_in(TARGET)
    assert left not in runs()


def test_when_messages_are_redriven_then_they_are_moved_and_in_the_ledger(pump: Pump) -> None:
    """R78."""
    result = pump("redrive", DEAD, "--to", TARGET, "--where", WHERE)

    assert result.exit_code == 0, result.stderr
    assert "sent 6, removed 6, left 4 untouched" in result.stdout
    assert ids_in(TARGET) == [f"m-{n}" for n in range(6)]
    assert ids_in(DEAD) == [f"m-{n}" for n in range(6, 10)]
    with closing(sqlite3.connect(".pumphouse/ledger.db")) as connection:
        rows = connection.execute(
            "SELECT message_id, status, queue, destination, reason, subscription FROM outcomes"
        ).fetchall()
    assert sorted(rows) == [
        (f"m-{n}", "redriven", DEAD, TARGET, "DeliveryError", "redrive") for n in range(6)
    ]


def test_when_it_has_come_to_its_end_then_nothing_that_quotes_messages_is_left(pump: Pump) -> None:
    """R78: bodies do not stay on the disk of whoever redrove them."""
    pump("redrive", DEAD, "--to", TARGET, "--where", WHERE)

    [run] = runs()
    assert {each.suffix for each in run.iterdir()} == {".json", ".record"}


def test_when_it_is_asked_for_json_then_the_summary_is_a_document(pump: Pump) -> None:
    """R78."""
    result = pump("redrive", DEAD, "--to", TARGET, "--where", "TRUE", "--limit", "3", "--json")

    document = json.loads(result.stdout)
    assert (document["selected"], document["sent"], document["left"]) == (3, 3, 0)
    assert ids_in(TARGET) == ["m-0", "m-1", "m-2"]


def test_when_nothing_is_selected_then_it_says_so_and_all_is_well(pump: Pump) -> None:
    """R78."""
    result = pump("redrive", DEAD, "--to", TARGET, "--where", "FALSE")

    assert result.exit_code == 0, result.stderr
    assert "Sending 0 of 10" in result.stdout
    assert len(ids_in(DEAD)) == 10


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("colour = 'red'", "colour"),
        ("1=1; DROP TABLE x", 'near ";"'),
        ("", "TRUE for all"),
        ("attempts", "no condition"),
    ],
)
def test_when_where_is_no_condition_then_the_error_names_the_columns_and_nothing_is_touched(
    pump: Pump, where: str, said: str
) -> None:
    """R78."""
    result = pump("redrive", DEAD, "--to", TARGET, "--where", where)

    assert result.exit_code == 3
    assert said in result.stderr
    assert result.stderr.startswith("error: --where=")
    assert (len(ids_in(DEAD)), ids_in(TARGET), runs()) == (10, [], [])


@pytest.mark.parametrize("rate", ["0", "-1", "nan", "inf", "fast"])
def test_when_the_rate_is_none_then_it_is_wrong_usage_and_nothing_is_sent(
    pump: Pump, rate: str
) -> None:
    """R78."""
    result = pump("redrive", DEAD, "--to", TARGET, "--where", WHERE, "--rate", rate)

    assert result.exit_code == 2
    assert "Invalid value for '--rate'" in result.stderr
    assert not Path(".pumphouse/redrive").exists()


@pytest.mark.parametrize(("queue", "to"), [("nowhere", TARGET), (DEAD, "nowhere")])
def test_when_a_queue_is_missing_then_the_others_are_named(pump: Pump, queue: str, to: str) -> None:
    """R78."""
    result = pump("redrive", queue, "--to", to, "--where", "TRUE")

    assert result.exit_code == 4
    assert "queue 'nowhere' does not exist" in result.stderr
    assert "there are orders, orders-dead" in result.stderr


def test_when_another_redrive_of_the_queue_runs_then_this_one_is_refused(pump: Pump) -> None:
    """R78."""
    plan = Plan(gateway="local://", queue=DEAD, target=TARGET, where="TRUE")
    with opened(Path("runs"), plan):
        result = pump("redrive", DEAD, "--to", TARGET, "--where", "TRUE", "--run", "runs")

    assert result.exit_code == 3
    assert "another redrive of 'orders-dead' is running" in result.stderr
    assert len(ids_in(DEAD)) == 10


def test_when_the_folder_is_another_queues_then_it_is_refused(pump: Pump) -> None:
    """R78."""
    pump("redrive", DEAD, "--to", TARGET, "--where", WHERE, "--run", "runs")

    result = pump("redrive", TARGET, "--to", DEAD, "--where", WHERE, "--run", "runs")

    assert result.exit_code == 3
    assert "belongs to 'orders-dead'" in result.stderr


def test_when_the_target_is_the_queue_itself_then_it_is_refused(pump: Pump) -> None:
    """R78: it would go round and round."""
    result = pump("redrive", DEAD, "--to", DEAD, "--where", "TRUE")

    assert result.exit_code == 3
    assert "name another queue" in result.stderr


def test_when_spark_is_asked_to_redrive_embedded_queues_then_it_says_why_not(pump: Pump) -> None:
    """R78: before a JVM is started."""
    result = pump("spark", "redrive", DEAD, "--to", TARGET, "--where", "TRUE")

    assert result.exit_code == 3
    assert "pump local" in result.stderr

"""`pump report`: from the command line to the page, with dead letters from a real queue."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pump import App
from pump.message import Message
from pump.report.fingerprint import fingerprint_of
from pump.report.snapshot import row_of
from pump.report.tables import SNAPSHOT
from pump.subscription import MakeChannels, QueueSpec

from .conftest import Pump
from .generated import ordinary, write_ledger

SEEN_US = 1_763_000_000_000_000


def dead_letter(number: int) -> Message:
    return Message(
        body=b"{}",
        id=f"d-{number}",
        type="PlaceOrder",
        created_at_s=1_762_000_000.0,
        headers={
            "originalTopic": "orders",
            "rejectionReason": "DeliveryError",
            "rejectionMessage": f"ValueError: order {number} has no customer",
            "rejectionTimestamp": "2025-11-13T02:00:00+00:00",
            "originalMessageType": "PlaceOrder",
            "attempts": "3",
        },
    )


def put(queue: str, *messages: Message) -> None:
    async def work() -> None:
        async with App("local://queues") as app:
            await app.admin.ensure(QueueSpec(name=queue), MakeChannels.CREATE)
            producer = app.gateway.producer(queue)
            await producer.send(list(messages))
            await producer.aclose()

    asyncio.run(work())


def test_when_a_report_is_asked_for_then_it_is_written_and_summed_up(
    pump: Pump, tmp_path: Path
) -> None:
    """R78: `pump report` finds the ledger where `pump run` leaves it."""
    write_ledger(tmp_path / ".pumphouse" / "ledger", ordinary(100))

    result = pump("report", "--since", "all")

    assert result.exit_code == 0, result.output
    assert "100 messages in" in result.stdout
    assert "TimeoutError: no answer from <url> within # s" in result.stdout
    assert "report: .pumphouse/report/report.html" in result.stdout
    assert "comparing failures …" in result.stderr
    assert (tmp_path / ".pumphouse" / "report" / "report.html").exists()


def test_when_json_is_asked_for_then_stdout_is_nothing_else(pump: Pump, tmp_path: Path) -> None:
    """R78: the numbers, for programs."""
    write_ledger(tmp_path / "ledger", ordinary(100))

    result = pump("report", "--ledger", "ledger", "--since", "all", "--out", "o", "--json")

    document = json.loads(result.stdout)
    assert document["totals"]["messages"] == 100
    assert document["totals"]["first_seen"].endswith("Z")
    assert document["clusters"][0]["pattern"]
    assert document["tables"]["totals"] == 1
    assert set(document["seconds"]) == {"read", "analyse", "write", "total"}


def test_when_dead_letters_are_named_then_they_are_looked_at_and_left(
    pump: Pump, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R78: a snapshot of dead-letter queues, without a ledger even."""
    monkeypatch.chdir(tmp_path)
    put("orders-dead", *map(dead_letter, range(7)))
    put("pay-dead", Message(body=b"?", id="bare"))
    asked = ["--dead-letters", "orders-dead", "--dead-letters", "pay-dead", "-g", "local://queues"]

    first = pump("report", *asked, "--out", "o")
    again = pump("report", *asked, "--out", "o", "--json")

    assert first.exit_code == 0, first.output
    assert "8 dead letters in the queues" in first.stdout
    assert json.loads(again.stdout)["totals"]["dead_letters"] == 8
    assert pq.read_table("o/dead_letters.parquet").num_rows == 8
    [group, bare] = pq.read_table("o/dead_letter_groups.parquet").to_pylist()
    assert (group["queue"], group["original_queue"], group["count"]) == ("orders-dead", "orders", 7)
    assert group["pattern"] == "ValueError: order # has no customer"
    assert (bare["queue"], bare["reason"], bare["pattern"]) == ("pay-dead", None, None)


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        ([], 3, "--dead-letters QUEUE"),
        (["--ledger", "nowhere"], 3, "there is no such ledger"),
        (["--ledger", "ledger", "--since", "yesterday"], 2, "--since"),
        (["--ledger", "ledger", "--until", "all"], 2, "--until"),
        (["--ledger", "ledger", "--out", "full"], 3, "--force"),
        (["--dead-letters", "no-such", "-g", "local://queues"], 4, "no-such"),
    ],
)
def test_when_something_cannot_work_then_it_is_said_in_one_line(
    pump: Pump, tmp_path: Path, arguments: list[str], exit_code: int, said: str
) -> None:
    """R78: exit codes, and what to do."""
    write_ledger(tmp_path / "ledger", ordinary(5))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()

    result = pump("report", *arguments)

    assert (result.exit_code, said in result.stderr) == (exit_code, True), result.output
    assert "Traceback" not in result.output


def test_when_headers_make_no_sense_then_the_row_has_none() -> None:
    """R78: anybody may have written them."""
    odd = {
        "rejectionTimestamp": "9" * 50,
        "attempts": "٣",
        "rejectionReason": "",
        "rejectionMessage": "x" * 10_000,
    }
    message = Message(body=b"", id="m", type="T", created_at_s=float("inf"), headers=odd)

    row = dict(
        zip((c.name for c in SNAPSHOT.columns), row_of(message, "dead", SEEN_US), strict=True)
    )

    assert (row["rejected_at"], row["created_at"], row["attempts"], row["age_s"]) == (None,) * 4
    assert (row["reason"], row["original_queue"], len(row["detail"])) == (None, None, 4_096)
    assert row["fingerprint"] == fingerprint_of("x" * 300)


def test_when_a_rejection_has_a_moment_then_the_age_is_counted_from_it() -> None:
    """R78: how long a dead letter has been one."""
    row = dict(
        zip(
            (c.name for c in SNAPSHOT.columns), row_of(dead_letter(1), "dead", SEEN_US), strict=True
        )
    )

    assert row["age_s"] == SEEN_US / 1e6 - 1_762_999_200
    assert (row["attempts"], row["type"]) == (3, "PlaceOrder")


@pytest.mark.parametrize("command", [["report"], ["spark", "report"]])
def test_when_help_is_asked_for_then_it_teaches(pump: Pump, command: list[str]) -> None:
    """R78: a paragraph, examples, exit codes; and no JVM is started for it."""
    result = pump(*command, "--help")

    assert result.exit_code == 0
    for word in ("Examples:", "Exit codes:", "--dead-letters", "--since", "--out"):
        assert word in result.stdout

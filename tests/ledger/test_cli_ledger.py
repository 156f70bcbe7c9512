"""`pump ledger`: what became of messages, for people and for programs."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from pump.cli.ledger import LedgerOptions, make_report, print_report, since, slot_count
from pump.clock import SYSTEM_CLOCK
from pump.stores.ledger.parquet_ledger import ParquetStore, RollOptions
from pump.stores.ledger.rows import Row
from pump.stores.ledger.sqlite_ledger import LedgerFile

from .conftest import Pump
from .support import a_row

ROOT = Path(__file__).resolve().parents[2]
KINDS = pytest.mark.parametrize("kind", ["sqlite", "parquet"])
HOUR_US = 3_600_000_000


def now_us() -> int:
    return round(SYSTEM_CLOCK.time_s() * 1e6)


def an_hour_of_rows() -> list[Row]:
    """Sixty payments and ten failures, the last of them a minute old."""
    end = now_us()
    paid = [
        a_row(message_id=f"p-{n}", type="Pay", time=end - HOUR_US + n * 60_000_000, run_s=0.1)
        for n in range(60)
    ]
    failed = [
        a_row(
            message_id=f"o-{n}",
            type="PlaceOrder",
            time=end - (10 - n) * 60_000_000,
            status="dead-lettered",
            reason="Unacceptable",
            destination="orders-dead",
            attempts=n + 1,
            detail=f"no such \x1b[31mcustomer: {n}",
            run_s=2.0,
        )
        for n in range(10)
    ]
    return paid + failed


def a_ledger(kind: str, rows: list[Row], folder: Path | None = None) -> str:
    """Write one in the working folder, where it is looked for."""
    path = (folder or Path(".pumphouse")) / ("ledger.db" if kind == "sqlite" else "ledger")
    options = RollOptions(roll_rows=1000, roll_every=timedelta(hours=1), keep=None)
    store = LedgerFile(path, None) if kind == "sqlite" else ParquetStore(path, options)
    store.append(rows)
    store.close(0.0)
    return str(path)


@KINDS
def test_when_asked_for_json_then_everything_is_there_to_be_computed_with(
    pump: Pump, kind: str
) -> None:
    path = a_ledger(kind, an_hour_of_rows())

    document = json.loads(pump("ledger", "--json").stdout)

    assert (document["ledger"], document["rows"]) == (path, 70)
    assert document["statuses"] == {
        **{"processed": 60, "retrying": 0, "dead-lettered": 10, "discarded": 0, "lease-lost": 0},
        "redriven": 0,
    }
    assert [(each["type"], each["processed"]) for each in document["types"]] == [
        ("Pay", 60),
        ("PlaceOrder", 0),
    ]
    assert document["types"][0]["rate_per_s"] == pytest.approx(1 / 60, rel=0.05)
    [reason] = document["reasons"]
    assert (reason["type"], reason["status"], reason["reason"], reason["count"]) == (
        *("PlaceOrder", "dead-lettered", "Unacceptable", 10),
    )
    assert [each["type"] for each in document["handlers"]] == ["PlaceOrder", "Pay"]
    assert document["handlers"][0]["p95_s"] == pytest.approx(2.0, rel=0.01)
    assert document["handlers"][0]["max_s"] == 2.0
    assert [each["message_id"] for each in document["failures"]] == [
        f"o-{n}" for n in range(9, -1, -1)
    ]
    assert document["failures"][0]["detail"] == "no such \x1b[31mcustomer: 9"
    slots = document["slots"]["counts"]
    assert (sum(each["processed"] for each in slots), sum(each["failed"] for each in slots)) == (
        60,
        10,
    )
    assert document["skipped"] == []


@KINDS
def test_when_piped_then_the_tables_are_plain_and_uncut(pump: Pump, kind: str) -> None:
    a_ledger(kind, an_hour_of_rows())

    result = pump("ledger")

    assert result.exit_code == 0, result.stderr
    assert "\x1b" not in result.stdout
    lines = result.stdout.splitlines()
    assert "70 outcome(s)" in lines[0]
    assert re.search(r"^type +rate +processed +dead-lettered$", result.stdout, re.MULTILINE)
    assert re.search(r"^Pay +(1/min|[56]\d(\.\d)?/h) +60 +0$", result.stdout, re.MULTILINE)
    assert re.search(r"^PlaceOrder +dead-lettered +Unacceptable +10 ", result.stdout, re.MULTILINE)
    assert re.search(r"^PlaceOrder +10 +2.0s +2.0s +2.0s +2.0s$", result.stdout, re.MULTILINE)
    [last] = [line for line in lines if " o-9 " in line]
    assert last.rstrip().endswith(r"no such \x1b[31mcustomer: 9")
    assert "█" in result.stdout


def test_when_filtered_then_only_those_rows_count(pump: Pump) -> None:
    a_ledger("sqlite", an_hour_of_rows())

    def rows(*options: str) -> int:
        count: int = json.loads(pump("ledger", "--json", *options).stdout)["rows"]
        return count

    assert rows("--type", "Pay") == 60
    assert rows("--type", "Pay", "--type", "PlaceOrder") == 70
    assert rows("--status", "dead-lettered") == 10
    assert rows("--reason", "Unacceptable", "--queue", "orders") == 10
    assert rows("--queue", "nowhere") == 0
    assert rows("--since", "5m30s") == 5 + 5
    assert rows("--since", "2020-01-01") == 70
    assert rows("--since", "all") == 70


def test_when_limited_then_the_newest_failures_are_shown_and_the_rest_is_counted(
    pump: Pump,
) -> None:
    a_ledger("sqlite", an_hour_of_rows())

    assert len(json.loads(pump("ledger", "--json", "--limit", "3").stdout)["failures"]) == 3
    assert "and 1 more; see --limit" in pump("ledger", "--limit", "1").stdout


def test_when_there_is_no_ledger_then_it_says_how_to_start_one(pump: Pump, tmp_path: Path) -> None:
    result = pump("ledger")

    assert result.exit_code == 0
    assert result.stdout.startswith("There is no ledger here; start one: pump run app:app --ledger")
    assert list(tmp_path.iterdir()) == []
    assert json.loads(pump("ledger", "--json").stdout)["rows"] == 0


def test_when_a_ledger_that_was_named_is_not_there_then_that_is_an_error(pump: Pump) -> None:
    result = pump("ledger", "nowhere")

    assert result.exit_code == 3
    assert "there is no ledger; start one: pump run app:app --ledger nowhere" in result.stderr


@KINDS
def test_when_a_ledger_is_empty_then_it_says_so(pump: Pump, kind: str) -> None:
    path = a_ledger(kind, [])

    result = pump("ledger", path)

    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith(f"{path} holds no outcomes yet")


def test_when_nothing_was_what_was_asked_for_then_it_says_so(pump: Pump) -> None:
    a_ledger("sqlite", an_hour_of_rows())

    result = pump("ledger", "--type", "Nobody")

    assert "try --since all, or fewer filters" in result.stdout


def test_when_files_are_damaged_then_they_are_named_and_the_rest_is_shown(pump: Pump) -> None:
    path = Path(a_ledger("parquet", an_hour_of_rows()))
    [day, *_] = sorted(path.glob("day=*"))
    (day / "torn.parquet").write_bytes(b"PAR1 and no more")

    result = pump("ledger", "--since", "all")

    assert result.exit_code == 0
    assert "70 outcome(s)" in result.stdout
    assert f"warning: {day}/torn.parquet was skipped: " in result.stderr


def test_when_the_file_is_no_ledger_then_it_is_named_and_the_exit_code_says_so(
    pump: Pump, tmp_path: Path
) -> None:
    (tmp_path / "diary").write_text("dear diary " * 100)

    result = pump("ledger", "diary")

    assert result.exit_code == 4
    assert "error: diary: is no SQLite database" in result.stderr


def test_when_pyarrow_is_missing_then_sqlite_works_and_parquet_names_the_extra(
    pump: Pump, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_ledger("sqlite", an_hour_of_rows())
    parquet = a_ledger("parquet", an_hour_of_rows())
    monkeypatch.setitem(sys.modules, "pump.stores.ledger.parquet", None)
    monkeypatch.delattr("pump.stores.ledger.parquet", raising=False)

    result = pump("ledger", parquet)

    assert result.exit_code == 3
    assert "pip install 'pumphouse[ledger]'" in result.stderr
    assert pump("ledger").exit_code == 0


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "5 apples", ""])
def test_when_since_makes_no_sense_then_it_is_a_usage_error(pump: Pump, text: str) -> None:
    result = pump("ledger", "--since", text)

    assert result.exit_code == 2
    assert "no duration (1h, 7d), no date" in result.stderr


def test_since_is_a_duration_a_date_or_a_moment() -> None:
    assert since("1h", 2 * HOUR_US) == HOUR_US
    assert since("all", 5) == 0
    assert since("9000d", 5) == 0
    assert since("1970-01-02", 5) == 24 * HOUR_US
    assert since("1970-01-01T01:00", 5) == HOUR_US
    assert since("1970-01-01T02:00+01:00", 5) == HOUR_US


def shown(path: str, *, width: int, encoding: str = "utf-8", **options: Any) -> str:
    """What a terminal of that width and encoding gets to see."""
    buffer = io.BytesIO()
    file = io.TextIOWrapper(buffer, encoding=encoding)
    console = Console(file=file, width=width, **options)
    report = make_report(LedgerOptions(path=path, since="1d"), max_slots=slot_count(console))
    print_report(report, console)
    file.flush()
    return buffer.getvalue().decode(encoding)


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_when_a_terminal_is_narrow_then_nothing_is_wider(width: int, tmp_path: Path) -> None:
    path = a_ledger("sqlite", an_hour_of_rows(), tmp_path)

    output = shown(path, width=width, force_terminal=True, color_system=None)

    # The heading is one long line on purpose: it can be copied.
    _, *lines = output.splitlines()
    assert max(cell_len(line) for line in lines) <= max(width, 20)
    assert "peak" in output or width < 40


def test_when_a_terminal_knows_ascii_only_then_that_is_what_it_gets(tmp_path: Path) -> None:
    rows = [*an_hour_of_rows(), a_row(type="Zahlung-für-Ö", time=now_us() - 5, status="retrying")]
    path = a_ledger("sqlite", rows, tmp_path)

    output = shown(path, width=100, encoding="ascii", force_terminal=True, color_system=None)

    assert output.isascii()
    assert "#" in output
    assert r"Zahlung-f\xfcr-\xd6" in output


def test_when_there_are_colours_then_failures_are_red(tmp_path: Path) -> None:
    path = a_ledger("sqlite", an_hour_of_rows(), tmp_path)

    assert "\x1b[31m" in shown(path, width=100, force_terminal=True, color_system="standard")
    assert "\x1b[31m" not in shown(
        path, width=100, force_terminal=True, color_system="standard", no_color=True
    )


def test_when_a_detail_is_long_then_a_terminal_gets_its_beginning(tmp_path: Path) -> None:
    row = a_row(time=now_us() - 5, status="retrying", detail="x" * 1_000)
    path = a_ledger("sqlite", [row], tmp_path)

    assert shown(path, width=400, force_terminal=True, color_system=None).count("x") < 300
    assert shown(path, width=2_000).count("x") >= 1_000


def test_when_a_clock_was_ahead_then_its_rows_count_in_the_last_slot(pump: Pump) -> None:
    a_ledger("sqlite", [a_row(time=now_us() + HOUR_US), a_row(time=now_us() - HOUR_US)])

    document = json.loads(pump("ledger", "--json").stdout)

    assert document["rows"] == 2
    counts = document["slots"]["counts"]
    assert [counts[0]["processed"], counts[-1]["processed"]] == [1, 1]
    assert len(counts) <= 62


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["ledger.db", "ledger"])
def test_when_an_app_is_run_with_a_ledger_then_the_ledger_shows_it(
    name: str, tmp_path: Path
) -> None:
    """`pump run --ledger PATH`, then `pump ledger PATH`, each a process of its own."""
    (tmp_path / "shop.py").write_text(
        "from pump import App, Command, RejectMessage, Subscription\n"
        "app = App('local://')\n"
        "class Pay(Command):\n"
        "    amount: int\n"
        "@app.handler\n"
        "async def pay(request: Pay) -> None:\n"
        "    if request.amount < 0: raise RejectMessage('less than nothing')\n"
        "app.subscribe(Subscription(queue='pay', request=Pay, dead_letter_queue='dead'))\n"
    )

    def pump(*arguments: str) -> str:
        return subprocess.run(
            [sys.executable, "-m", "pump", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    pump("send", "pay", '{"amount": 5}', "--app", "shop:app", "--count", "3")
    pump("send", "pay", '{"amount": -5}', "--app", "shop:app")
    pump("run", "shop:app", "--until-empty", "--ledger", name)

    document = json.loads(pump("ledger", name, "--json"))
    assert (document["statuses"]["processed"], document["statuses"]["dead-lettered"]) == (3, 1)
    [failure] = document["failures"]
    assert (failure["detail"], failure["gateway"]) == ("less than nothing", "local")

"""What is refused before anything is started, and said with its remedy."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pump import App, ConfigurationError
from pump.capabilities import Capabilities
from pump.cli.redrive import RedriveOptions
from pump.cli.spark import redrive_on_spark
from pump.spark.run.plan import AppByName, SparkRunOptions
from pump.spark.run.running import Work, check_gateway, check_session, ledger_for
from pump.spark.session import SparkOptions
from pump.stores.ledger import ParquetLedger, SqliteLedger


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("memory://", "its queues live in one process"),
        ("local://", "serve them with `pump local`"),
    ],
)
def test_when_a_gateway_is_one_machines_own_then_it_is_refused_with_the_remedy(
    url: str, why: str
) -> None:
    """R78: says clearly why not."""
    with pytest.raises(ConfigurationError, match=why):
        Work.of(App(url), SparkRunOptions(), AppByName(target="a:b"))


def test_when_a_gateway_spans_machines_then_it_is_accepted_whatever_it_is() -> None:
    """R78: works with gateways to come, without a change here."""
    check_gateway(Capabilities(gateway="to-come", is_shared=True, spans_machines=True))


def test_when_no_ledger_is_named_then_the_apps_own_is_used_with_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R78: the ledger of the app, by an absolute path: tasks may have another working folder."""
    monkeypatch.chdir(tmp_path)
    own = ParquetLedger("mine", keep=timedelta(days=3), detail=False)

    chosen = ledger_for(App("memory://", ledger=own), None)

    assert chosen.folder == tmp_path / "mine"
    assert not chosen.has_detail
    assert chosen._options.keep == timedelta(days=3)
    assert ledger_for(App("memory://"), None).folder == tmp_path / ".pumphouse" / "ledger"
    assert ledger_for(App("memory://", ledger=own), "other").folder == tmp_path / "other"


@pytest.mark.parametrize("asked", [None, "outcomes.db", "sqlite:///outcomes"])
def test_when_the_ledger_is_one_sqlite_file_then_it_is_refused(asked: str | None) -> None:
    """R78: a folder that all see, not a file of one machine's."""
    app = App("memory://", ledger=SqliteLedger("ledger.db"))

    with pytest.raises(ConfigurationError, match="name a folder for Parquet"):
        ledger_for(app, asked)


def a_session(**conf: str) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: conf))


@pytest.mark.parametrize("on", ["true", "True"])
def test_when_spark_would_speculate_then_the_session_is_refused(on: str) -> None:
    """R78: speculation must be off."""
    check_session(a_session())
    check_session(a_session(**{"spark.speculation": "false"}))
    with pytest.raises(ConfigurationError, match="set it to false"):
        check_session(a_session(**{"spark.speculation": on}))


def test_when_spark_would_speculate_then_a_redrive_is_refused_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R78: the copy that is killed would have been sending; what it sent comes twice."""
    session = a_session(**{"spark.speculation": "true"})
    monkeypatch.setattr("pump.spark.session.spark_session", lambda _: nullcontext(session))
    asked = RedriveOptions(queue="dead", to="orders", where="TRUE", run=str(tmp_path / "run"))

    with pytest.raises(ConfigurationError, match="set it to false"):
        redrive_on_spark(asked, SparkOptions(), "sqs://eu-west-1", None)


def test_when_the_session_is_a_remote_one_then_it_is_refused() -> None:
    """R78: Spark Connect has no tasks of ours."""
    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()

    with pytest.raises(ConfigurationError, match="Spark Connect"):
        check_session(remote)


@pytest.mark.parametrize(
    "options",
    [
        {"flush": 0},
        {"tasks": 0},
        {"slice_messages": 0},
        {"slice_time": timedelta(0)},
        {"run_for": timedelta(0)},
        {"until_empty": True, "run_for": timedelta(hours=1)},
    ],
)
def test_when_an_option_cannot_work_then_it_is_refused_by_name(options: dict[str, Any]) -> None:
    """R78: options are checked once, in their class."""
    with pytest.raises(ConfigurationError) as refused:
        SparkRunOptions(**options)

    assert refused.value.field in options


def test_when_pump_is_imported_then_nothing_of_spark_is() -> None:
    """R78: whoever does not use it does not pay for it."""
    program = "import sys, pump, pump.app; sys.exit(any('spark' in name for name in sys.modules))"

    assert subprocess.run([sys.executable, "-c", program]).returncode == 0

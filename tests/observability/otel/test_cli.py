"""`pump run --telemetry`: what its words mean, and that the right thing is run with."""

from __future__ import annotations

import sys
import urllib.request
from pathlib import Path

import pytest

from pump.cli.options import TelemetryChoice, telemetry_choice, telemetry_of
from pump.cli.settings import EnvironmentSettings
from pump.errors import ConfigurationError
from pump.observability.metrics import Metrics
from pump.observability.otel import OpenTelemetry
from pump.processes.ipc import RunOptions
from tests.cli.programs import pump, running

from .collector import collecting

APP = """
from opentelemetry import trace
from pump import App, Command, Subscription

class Work(Command):
    pass

app = App("local://")

@app.handler
async def handle(request: Work) -> None:
    with trace.get_tracer("shop").start_as_current_span("own work"):
        print("handled", flush=True)

app.subscribe(Subscription(queue="work", request=Work, dead_letter_queue="dead"))
"""


@pytest.mark.parametrize(
    ("kinds", "choice"),
    [
        ([], TelemetryChoice()),
        (["off"], TelemetryChoice(is_off=True)),
        (["otlp"], TelemetryChoice(is_otlp=True)),
        (["prometheus"], TelemetryChoice(port=9464)),
        (["prometheus:0"], TelemetryChoice(port=0)),
        (["prometheus:0.0.0.0:9000"], TelemetryChoice(host="0.0.0.0", port=9000)),
        (["prometheus:[::1]:9000"], TelemetryChoice(host="::1", port=9000)),
        (["otlp", "prometheus:9"], TelemetryChoice(is_otlp=True, port=9)),
    ],
)
def test_when_telemetry_is_named_then_it_is_understood(
    kinds: list[str], choice: TelemetryChoice
) -> None:
    assert telemetry_choice(kinds) == choice


@pytest.mark.parametrize(
    "kinds",
    [
        ["jaeger"],
        ["otlp:4317"],
        ["prometheus:"],
        ["prometheus:x"],
        ["prometheus:70000"],
    ],
)
def test_when_it_cannot_be_understood_then_the_words_there_are_are_named(kinds: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="use otlp, prometheus"):
        telemetry_choice(kinds)


def test_when_off_comes_with_something_else_then_it_is_said_that_it_stands_alone() -> None:
    """R56."""
    with pytest.raises(ConfigurationError, match="stands alone"):
        telemetry_choice(["off", "otlp"])


def test_when_telemetry_is_chosen_then_that_is_made() -> None:
    assert isinstance(telemetry_of(telemetry_choice(["prometheus"]), "shop"), Metrics)
    assert isinstance(telemetry_of(telemetry_choice(["otlp"]), "shop"), OpenTelemetry)
    assert telemetry_of(telemetry_choice(["off"]), "shop") is None


def test_when_the_app_is_reloaded_then_its_telemetry_goes_along() -> None:
    options = RunOptions(target="shop:app", telemetry=("otlp", "prometheus:0"))

    assert options.arguments().count("--telemetry=otlp") == 1
    assert "--telemetry=prometheus:0" in options.arguments()


def test_when_the_environment_names_telemetry_then_it_is_read() -> None:
    assert EnvironmentSettings.from_environment({"PUMP_TELEMETRY": "otlp"}).telemetry == "otlp"


def test_when_opentelemetry_is_not_installed_then_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.startswith("pump.observability.otel")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    for name in [name for name in sys.modules if name.startswith("opentelemetry.")]:
        monkeypatch.delitem(sys.modules, name)

    with pytest.raises(ConfigurationError, match=r"pip install 'pumphouse\[otel\]'"):
        telemetry_of(telemetry_choice(["otlp"]), "shop")


@pytest.mark.timeout(120)
def test_when_a_propagator_is_misspelt_then_the_variable_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R56."""
    (tmp_path / "shop.py").write_text(APP)
    monkeypatch.setenv("OTEL_PROPAGATORS", "tracecontxt")

    done = pump("run", "shop:app", "--telemetry", "otlp", folder=tmp_path)

    assert done.returncode != 0
    assert "OTEL_PROPAGATORS" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.timeout(120)
def test_when_an_app_is_run_with_otlp_then_the_collector_hears_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R59: by configuration alone."""
    (tmp_path / "shop.py").write_text(APP)
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        with running("run", "shop:app", "--telemetry", "otlp", folder=tmp_path) as program:
            program.err.wait_for("pump.started")
            pump("send", "work", "{}", "--type", "Work", folder=tmp_path)
            program.out.wait_for("handled")
            program.signal()
            assert program.wait() == 0

    by_name = {span.name: span for span in collector.spans()}
    assert by_name["own work"].parent_span_id == by_name["process work"].span_id
    assert collector.services() == {"shop"}
    assert "pump_messages_completed" in collector.exports()[-1]


@pytest.mark.timeout(120)
def test_when_an_app_is_run_with_prometheus_then_its_metrics_can_be_fetched(
    tmp_path: Path,
) -> None:
    """R60: by configuration alone."""
    (tmp_path / "shop.py").write_text(APP)
    command = ("run", "shop:app", "--telemetry", "prometheus:0", "--log-format", "json")
    with running(*command, folder=tmp_path) as program:
        line = program.err.wait_for("metrics.served")
        program.err.wait_for("pump.started")
        url = "http" + line.split("http", 1)[1].split('"', 1)[0]
        with urllib.request.urlopen(url, timeout=5) as answer:
            text = answer.read().decode()
        program.signal()
        assert program.wait() == 0

    assert "pump_messages_in_flight{" in text

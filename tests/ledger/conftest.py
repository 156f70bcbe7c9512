"""A clock, and the command line called inside the test's process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pump.cli.root import cli
from pump.testing.virtual_clock import VirtualClock

Pump = Callable[..., Result]


@pytest.fixture
def clock(request: pytest.FixtureRequest) -> VirtualClock:
    """Waits for the disk, also for one that others keep busy, before time passes."""
    patience_s = getattr(request.module, "PATIENCE_S", 10.0)
    return VirtualClock(chance=0.0, thread_patience_s=patience_s)


@pytest.fixture
def pump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pump:
    """`pump(...)` in the working folder `tmp_path`."""
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()

    def call(*arguments: str) -> Result:
        return runner.invoke(cli, arguments, prog_name="pump")

    return call

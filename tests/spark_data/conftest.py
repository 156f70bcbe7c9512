"""What the tests of messages as data share."""

from __future__ import annotations

from pathlib import Path

import pytest

from pump.testing.virtual_clock import VirtualClock

from .bench import WatchedGateway


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def gateway(clock: VirtualClock, folder: Path) -> WatchedGateway:
    return WatchedGateway(clock, folder)

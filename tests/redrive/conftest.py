"""A clock that stands still, and a redrive's folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from pump.testing.virtual_clock import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(chance=0.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "redrive"

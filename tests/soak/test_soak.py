"""Memory stays flat, however many messages pass."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_when_a_million_messages_pass_then_memory_stays_flat() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "tests.soak.child_million"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )

    peaks_mib = [int(line) / 1024 for line in result.stdout.split()]
    assert len(peaks_mib) == 10
    # The second 100,000 have seen everything there is to see; 800,000 more add nothing.
    assert peaks_mib[-1] - peaks_mib[1] < 8, peaks_mib

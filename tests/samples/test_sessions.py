"""The sessions sample prints what it promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from .test_samples import expected_lines, run


@pytest.mark.timeout(90)
def test_two_packers_share_the_customers_and_never_one_customer(tmp_path: Path) -> None:
    """R40: in this order."""
    result = run("-m", "samples.sessions", cwd=tmp_path)

    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == expected_lines("sessions")

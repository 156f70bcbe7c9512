"""A failing seed is replayed by one command, whichever process it failed in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .cases import CASES, Case
from .running import run

ROOT = Path(__file__).parents[4]


def replay(*words: str, hash_seed: str = "0") -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.gateways.s3.simulation", *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        check=False,
    )
    assert not done.stderr
    return done.returncode, done.stdout


def test_when_a_seed_fails_then_the_command_of_its_message_shows_it_again() -> None:
    """T8: the failure message names the command, and that ends as the run did."""
    seeds = (run(seed, CASES["reference"], "delete-on-reclaim") for seed in range(100))
    failed = next(outcome for outcome in seeds if outcome.broken)

    status, shown = replay(*failed.command.split()[3:])

    assert failed.command in failed.describe()
    assert status == 1
    assert shown.strip() == failed.describe(max_lines=None).strip()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_when_a_seed_is_run_in_processes_that_hash_otherwise_then_all_is_the_same(
    case: Case,
) -> None:
    """T8: a run is a function of its seed."""
    shown = {replay("3", "--layout", case.name, hash_seed=seed) for seed in ("1", "2")}

    assert len(shown) == 1
    assert "asks" in shown.pop()[1]

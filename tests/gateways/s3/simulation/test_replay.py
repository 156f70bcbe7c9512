"""A failing seed is replayed by one command, whichever process it failed in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.together import together

from .cases import CASES
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


EACH = """
import json
from tests.gateways.s3.simulation.cases import CASES
from tests.gateways.s3.simulation.running import run
print(json.dumps({name: run(3, case).describe(max_lines=None) for name, case in CASES.items()}))
"""


def shown_with(hash_seed: str) -> dict[str, str]:
    """What a run of each kind of queue shows in a process that hashes like this."""
    done = subprocess.run(
        [sys.executable, "-c", EACH],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        check=True,
    )
    shown: dict[str, str] = json.loads(done.stdout)
    return shown


@pytest.mark.timeout(60)
def test_when_a_seed_is_run_in_processes_that_hash_otherwise_then_all_is_the_same() -> None:
    """T8: a run is a function of its seed."""
    one, other = shown_with("1"), shown_with("2")

    with together() as each:
        for name in CASES:
            with each(name):
                assert one[name] == other[name]
                assert "asks" in one[name]

"""Signals of the operating system: the first drains, the second stops now."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .rig import Rig

ROOT = Path(__file__).parents[2]


@contextmanager
def child(seconds: float) -> Iterator[subprocess.Popen[str]]:
    """The program with a handler that takes so long, once that handler runs."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.core.child_app", str(seconds)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "started\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_when_a_signal_comes_then_the_app_drains_and_ends_with_zero(number: signal.Signals) -> None:
    """Law 5: what was started finishes."""
    with child(0.3) as process:
        process.send_signal(number)
        output, errors = process.communicate(timeout=15)

    assert output.splitlines() == ["finished", "processed 1 retried 0"]
    assert process.returncode == 0, errors


def test_when_a_second_signal_comes_then_it_ends_promptly_and_hands_back() -> None:
    """Law 6."""
    with child(3_600) as process:
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.3)
        # Another one: two of a kind that nobody has looked at yet are one.
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=15)

    assert output.splitlines() == ["cancelled", "processed 0 retried 1"]
    assert process.returncode == 0, errors


async def test_when_the_app_has_ended_then_the_signal_does_what_it_did_before() -> None:
    before = signal.getsignal(signal.SIGTERM)
    rig = Rig()
    serving = asyncio.create_task(rig.app.serve())
    await rig.clock.settle()
    assert signal.getsignal(signal.SIGTERM) != before

    signal.raise_signal(signal.SIGTERM)
    dispatcher = await serving

    assert signal.getsignal(signal.SIGTERM) == before
    assert dispatcher.performers[0].state == "stopped"

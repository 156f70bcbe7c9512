"""Threads for blocking calls: as few as will do, and none that holds up the end."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from gateways._aws.sdk import DaemonThreads
from pump.clock import SYSTEM_CLOCK

from .fake_aws import FakeAws, Wait

CHILD = Path(__file__).with_name("child_boto3.py")
ROOT = Path(__file__).parents[3]


def _name() -> str:
    return threading.current_thread().name


def test_when_work_comes_one_by_one_then_threads_are_reused_and_end_at_shutdown() -> None:
    """R54."""
    threads = DaemonThreads(4, "reused")

    names = {threads.submit(_name).result() for _ in range(50)}
    threads.shutdown()

    assert len(names) <= 4
    for thread in threading.enumerate():
        if thread.name in names:
            thread.join(timeout=5)
            assert not thread.is_alive()


def test_when_more_work_comes_than_threads_are_allowed_then_it_waits_for_one() -> None:
    """R54: the maximum is respected."""
    threads = DaemonThreads(2, "limited")
    go = threading.Event()
    running = [threads.submit(go.wait) for _ in range(2)]
    waiting = threads.submit(_name)

    dropped = threads.submit(_name)
    assert dropped.cancel()
    go.set()

    assert [work.result(timeout=5) for work in running] == [True, True]
    assert waiting.result(timeout=5) in {"limited-1", "limited-2"}
    assert dropped.cancelled()
    threads.shutdown()


def test_when_work_fails_then_who_waits_hears_it_and_the_thread_goes_on() -> None:
    threads = DaemonThreads(1, "failing")

    with pytest.raises(ZeroDivisionError):
        threads.submit(divmod, 1, 0).result()

    assert threads.submit(_name).result() == "failing-1"
    threads.shutdown()


async def test_when_a_process_ends_then_it_does_not_wait_for_a_poll_that_nobody_waits_for(
    aws: FakeAws,
) -> None:
    """A person who interrupts twice gets the prompt back."""
    aws.script.append(Wait())
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    child = await asyncio.create_subprocess_exec(
        sys.executable, CHILD, aws.url, stdin=PIPE, stdout=PIPE, env=environment
    )
    try:
        await aws.busy_with(1)
        # The server still holds the poll, for as long as this test lasts.
        async with SYSTEM_CLOCK.timeout(15):
            said, _ = await child.communicate(b"end\n")
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()

    assert (said.decode().strip(), child.returncode) == ("bye", 0)

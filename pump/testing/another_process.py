"""A task of the contract suite in another process: reach a queue that a gateway says it shares.

The process has a folder of its own to work in, and notes what else of the machine it used: a
gateway that spans machines needs none of it.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from ..clock import SYSTEM_CLOCK, Clock
from ..message import Message
from ..outcome import ACK, Settlement
from ..ports import Gateway
from ..subscription import Subscription
from .virtual_clock import VirtualClock

LIMIT_S = 30.0
"""Real seconds that a task may take, a new interpreter included."""
_LOOKS = 50
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
# What must be so before anything can be imported there.
_START = """
import os, pickle, sys, tempfile
sys.dont_write_bytecode = True
sys.path[:], folder, task = pickle.load(sys.stdin.buffer)
os.chdir(folder)
tempfile.tempdir = folder
from pump.testing.another_process import serve
serve(folder, task)
"""


@attrs.frozen(kw_only=True)
class ProcessTask:
    """What to do there: receive one message, ack it, and send one back."""

    make: Callable[[Clock], Gateway]
    subscription: Subscription
    poll_s: float
    now_s: float | None
    """The moment at which virtual time stands, None where time is real."""


@attrs.frozen(kw_only=True)
class ProcessAnswer:
    """What came of it."""

    received: tuple[str, ...] = ()
    """The ids of the messages that the first receive with any returned."""
    refused: int = 0
    """How many of their acks were refused."""
    sent: str = ""
    """The id of the message that was sent back."""
    local: tuple[str, ...] = ()
    """Files that were written, databases and sockets that were used, outside of the folder."""


async def run(task: ProcessTask) -> ProcessAnswer:
    """Do it in a new interpreter with a folder of its own, and say what was found.

    Raises RuntimeError, with what the other process said last, when it failed.
    """
    with tempfile.TemporaryDirectory(prefix="elsewhere-") as folder:
        job = pickle.dumps((sys.path, folder, pickle.dumps(task)))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _START),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(LIMIT_S):
                answer, error_output = await process.communicate(job)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    if process.returncode:
        raise RuntimeError(f"in another process: {error_output.decode(errors='replace')[-2000:]}")
    found: ProcessAnswer = pickle.loads(answer)
    return found


def serve(folder: str, task: bytes) -> None:
    """Do a task in this process, and write what was found to standard output."""
    job: ProcessTask = pickle.loads(task)
    used: dict[str, None] = {}
    sys.addaudithook(_noting(used, Path(folder)))
    found = asyncio.run(_perform(job))
    sys.stdout.buffer.write(pickle.dumps(attrs.evolve(found, local=tuple(used))))
    sys.stdout.flush()


async def _perform(task: ProcessTask) -> ProcessAnswer:
    clock: Clock = SYSTEM_CLOCK
    if task.now_s is not None:
        clock = VirtualClock(starts_at_s=task.now_s)
    gateway = task.make(clock)
    await gateway.open()
    try:
        return await _exchange(gateway, task)
    finally:
        await gateway.aclose()


async def _exchange(gateway: Gateway, task: ProcessTask) -> ProcessAnswer:
    consumer = gateway.consumer(task.subscription)
    producer = gateway.producer(task.subscription.queue)
    deliveries: Any = ()
    for _ in range(_LOOKS):
        deliveries = await consumer.receive(max_count=10, wait_s=task.poll_s)
        if deliveries:
            break
        await SYSTEM_CLOCK.sleep(0.05)
    refused = await consumer.settle([Settlement(each, ACK) for each in deliveries])
    [sent] = await producer.send([Message(body=b"from another process")])
    await consumer.aclose()
    await producer.aclose()
    return ProcessAnswer(
        received=tuple(each.message.id for each in deliveries), refused=len(refused), sent=sent
    )


def _noting(used: dict[str, None], folder: Path) -> Callable[[str, tuple[Any, ...]], None]:
    """An audit hook that notes what a process of another machine would not find."""

    def note(event: str, details: tuple[Any, ...]) -> None:
        place = _local_place(event, details)
        if place and not place.startswith(("/dev/", str(folder))):
            used[place] = None

    return note


def _local_place(event: str, details: tuple[Any, ...]) -> str:
    match event, details:
        case "open", (str() | bytes() | os.PathLike() as path, _, int(flags)) if flags & _WRITES:
            return os.path.abspath(os.fsdecode(path))
        case "sqlite3.connect", (str() | bytes() | os.PathLike() as path, *_) if path != ":memory:":
            return os.path.abspath(os.fsdecode(path))
        case "socket.connect", (socket.socket() as used, address) if used.family == getattr(
            socket, "AF_UNIX", None
        ):
            return str(address)
    return ""

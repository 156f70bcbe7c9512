"""Fixtures of the embedded gateways' tests."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from gateways.local import LocalGateway
from pump.clock import Clock
from pump.testing.virtual_clock import VirtualClock

from ..loops import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]

CHILD = Path(__file__).with_name("child_local.py")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


OpenLocal = Callable[..., Awaitable[LocalGateway]]


@pytest.fixture
async def open_local(tmp_path: Path) -> AsyncIterator[OpenLocal]:
    """Opens local gateways on one folder, and closes them at the end."""
    async with AsyncExitStack() as stack:

        async def open_gateway(
            clock: Clock, folder: Path = tmp_path, max_bytes: int | None = None
        ) -> LocalGateway:
            gateway = LocalGateway(folder, clock, max_bytes=max_bytes)
            stack.push_async_callback(gateway.aclose)
            await gateway.open()
            return gateway

        yield open_gateway


class Child:
    """A process of `child_local.py`."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def line(self) -> str:
        """The next thing it says."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        assert line, "the child ended without a word"
        return line.decode().strip()

    async def lines(self, count: int) -> list[str]:
        return [await self.line() for _ in range(count)]

    async def pairs(self) -> AsyncIterator[tuple[str, str]]:
        """All it says in lines of two words, until it dies."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if line.endswith(b"\n"):
                first, second = line.decode().split()
                yield first, second

    async def rest(self) -> list[str]:
        """All it said that was not read, once it is dead."""
        assert self._process.stdout is not None
        text = (await self._process.stdout.read()).decode()
        # A killed writer may leave half a line.
        return text[: text.rfind("\n") + 1].split()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    def close_stdin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def ended(self) -> int:
        return await self._process.wait()


StartChild = Callable[[str], Awaitable[Child]]


@pytest.fixture
async def start_child(tmp_path: Path) -> AsyncIterator[StartChild]:
    """Starts programs on the folder, and kills them at the end."""
    children: list[Child] = []

    async def start(mode: str) -> Child:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            CHILD,
            mode,
            tmp_path,
            stdin=PIPE,
            stdout=PIPE,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            limit=2**22,
        )
        children.append(Child(process))
        return children[-1]

    yield start
    for child in children:
        await child.kill()
        child.close_stdin()
        await child.rest()

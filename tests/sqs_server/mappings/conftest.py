"""A project folder to put functions into, a queue, and mappings that run until the test ends."""

from __future__ import annotations

import asyncio
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pytest

from gateways.sqs_server.config import MappingConfig
from gateways.sqs_server.mappings import EventSource
from pump.clock import SYSTEM_CLOCK
from pump.testing.virtual_clock import VirtualClock

from .fake_engine import FakeEngine, FakeQueue

_numbers = count(1)

_HOLDS = """
    import asyncio, threading
    calls, go_on = [], threading.Event()

    {kind} on_orders(event, context):
        calls.append(len(event["Records"]))
        {then}
"""
HOLDS = _HOLDS.format(kind="def", then="go_on.wait(10)")
"""A function that ends when it is told to."""
BLOCKS_ITS_LOOP = _HOLDS.format(kind="async def", then="go_on.wait(10)")
RESISTS = _HOLDS.format(
    kind="async def",
    then="""
        while not go_on.is_set():
            try:
                await asyncio.sleep(0.001)
            except asyncio.CancelledError:
                pass
    """,
)
"""One that does not let itself be cancelled."""


@attrs.frozen
class Project:
    """A folder with one module, of a name that no other test has."""

    folder: Path
    module: str

    def write(self, source: str, file: str | None = None) -> None:
        path = self.folder / (file or f"{self.module}.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))

    def state(self) -> Any:
        """The module as it is imported now."""
        return sys.modules[self.module]

    def is_imported(self) -> bool:
        """Whether the module with `calls` was imported to its end."""
        return hasattr(sys.modules.get(self.module), "calls")

    def called(self) -> int:
        """How often its function has noted a call in `calls`; a thread may be about to."""
        return len(getattr(sys.modules.get(self.module), "calls", ()))


class Gate(ModuleType):
    """A module to import where the import of another is to wait: until the gate is opened."""

    def __init__(self) -> None:
        super().__init__(f"functions_gate_{next(_numbers)}")
        sys.modules[self.__name__] = self
        self.source = f"    import {self.__name__} as gate\n    gate.pass_through()\n"
        self.thread: threading.Thread | None = None
        self._is_open = threading.Event()

    def was_reached(self) -> bool:
        return self.thread is not None

    def open(self) -> None:
        self._is_open.set()

    def pass_through(self) -> None:
        self.thread = threading.current_thread()
        self._is_open.wait(10)


@pytest.fixture
def gate(project: Project) -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    modules, path = dict(sys.modules), list(sys.path)
    yield Project(tmp_path, f"functions_{next(_numbers)}")
    sys.path[:] = path
    for name in set(sys.modules) - set(modules):
        if name.startswith("functions_") or name.startswith("shop_"):
            del sys.modules[name]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def engine(clock: VirtualClock) -> FakeEngine:
    return FakeEngine(clock)


@pytest.fixture
def queue(engine: FakeEngine) -> FakeQueue:
    return engine.create()


Start = Callable[..., EventSource]


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for a thread that no task waits for: real time, and pytest's timeout bounds it."""
    while not is_so():
        await SYSTEM_CLOCK.sleep(0.001)


@pytest.fixture
async def start(
    engine: FakeEngine, clock: VirtualClock, project: Project
) -> AsyncIterator[Callable[..., EventSource]]:
    """Start a mapping of the project's function `on_orders`; it is cancelled at the end."""
    tasks: list[asyncio.Task[None]] = []

    def start(queue: FakeQueue, **settings: Any) -> EventSource:
        function = settings.pop("function", f"{project.module}:on_orders")
        config = MappingConfig(queue=queue.settings.address.name, function=function, **settings)
        mapping = EventSource(engine, queue, config, clock, root=project.folder)
        tasks.append(asyncio.create_task(mapping.run()))
        return mapping

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

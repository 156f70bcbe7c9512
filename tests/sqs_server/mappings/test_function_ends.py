"""How a function may end, and what that does to the mapping (R46)."""

from __future__ import annotations

import pytest

from gateways.sqs_server.config import MappingConfig
from gateways.sqs_server.mappings import EventSource
from pump.testing.virtual_clock import VirtualClock

from .conftest import Project, Start
from .fake_engine import FakeEngine, FakeQueue

SUCCEEDS = "async def on_orders(event, context):\n    return None\n"
BEFORE = """
import asyncio, sys

class Stop(BaseException): ...

class Mute(Exception):
    def __str__(self): raise RuntimeError

class MuteStop(BaseException):
    def __str__(self): raise Stop

class Odd(dict):
    def items(self): raise RuntimeError

class Deadly(dict):
    def items(self): raise Stop
"""


@pytest.mark.parametrize("kind", ["", "async "])
@pytest.mark.parametrize(
    "end",
    [
        "sys.exit(3)",
        "raise KeyboardInterrupt",
        "raise GeneratorExit",
        "raise StopIteration",
        "raise asyncio.CancelledError",
        "raise TimeoutError",
        "raise Stop('now')",
        "raise Mute",
        "raise MuteStop",
        "raise ExceptionGroup('several', [Mute(), ValueError()])",
        "return Odd(a=1)",
        "return Deadly(a=1)",
        "return object()",
        "return ['x' * 1_000] * 7_000",
    ],
)
async def test_however_the_function_fails_its_batch_fails_at_once_and_nothing_else(
    kind: str,
    end: str,
    project: Project,
    engine: FakeEngine,
    queue: FakeQueue,
    clock: VirtualClock,
    start: Start,
    caplog: pytest.LogCaptureFixture,
) -> None:
    project.write(f"{BEFORE}\n{kind}def on_orders(event, context):\n    {end}\n")
    for body in "abc":
        engine.send(queue, body)

    mapping = start(queue, batch_size=1, max_concurrency=2)
    await clock.settle()

    assert mapping.counters.failed == 3
    assert engine.hidden(queue) == ["a", "b", "c"]
    # Nothing that only Python or asyncio would tell of: a thread that died, a lost exception.
    assert {record.name for record in caplog.records} == {"gateways.sqs_server"}


async def test_when_the_function_raises_then_its_traceback_is_said_without_variables(
    project: Project,
    engine: FakeEngine,
    queue: FakeQueue,
    clock: VirtualClock,
    start: Start,
    caplog: pytest.LogCaptureFixture,
) -> None:
    project.write(
        """
        def on_orders(event, context):
            body = event["Records"][0]["body"]
            return refuse(body)

        def refuse(body):
            raise LookupError("not today")
        """
    )
    engine.send(queue, "a secret of somebody's")

    start(queue)
    await clock.settle()

    assert "LookupError: not today" in caplog.text
    assert "return refuse(body)" in caplog.text
    assert "secret" not in caplog.text
    assert not any(record.exc_info for record in caplog.records)


async def test_when_the_answer_is_too_large_then_the_limit_is_named(
    project: Project,
    engine: FakeEngine,
    queue: FakeQueue,
    clock: VirtualClock,
    start: Start,
    caplog: pytest.LogCaptureFixture,
) -> None:
    project.write("def on_orders(event, context):\n    return 'x' * 7_000_000\n")
    engine.send(queue, "a")

    start(queue)
    await clock.settle()

    assert "more than 6,291,556 bytes" in caplog.text


@pytest.mark.parametrize("kind", ["", "async "])
async def test_a_function_runs_in_a_thread_that_python_does_not_wait_for(
    kind: str,
    project: Project,
    engine: FakeEngine,
    queue: FakeQueue,
    clock: VirtualClock,
    start: Start,
) -> None:
    project.write(
        f"""
        import threading
        threads = []

        {kind}def on_orders(event, context):
            threads.append(threading.current_thread())
        """
    )
    engine.send(queue, "a")

    start(queue)
    await clock.settle()

    [thread] = project.state().threads
    assert thread.name.startswith("function-")
    assert thread.daemon
    assert queue.bodies == []


async def test_when_a_plain_function_returns_a_coroutine_then_it_is_awaited(
    project: Project, engine: FakeEngine, queue: FakeQueue, clock: VirtualClock, start: Start
) -> None:
    project.write(
        """
        async def fails():
            raise ValueError

        def on_orders(event, context):
            return fails()
        """
    )
    engine.send(queue, "a")

    mapping = start(queue)
    await clock.settle()

    assert mapping.counters.failed == 1


async def test_when_drained_before_it_runs_then_running_ends_at_once(
    project: Project, engine: FakeEngine, queue: FakeQueue, clock: VirtualClock
) -> None:
    project.write(SUCCEEDS)
    engine.send(queue, "a")
    config = MappingConfig(queue="orders", function=f"{project.module}:on_orders")
    mapping = EventSource(engine, queue, config, clock, root=project.folder)

    await mapping.drain()
    await mapping.run()

    assert queue.bodies == ["a"]
    assert engine.receives == []

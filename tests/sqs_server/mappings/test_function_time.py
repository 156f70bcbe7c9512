"""A function's time: what overruns it is cancelled or left behind, and stops nothing else (R46)."""

from __future__ import annotations

import asyncio

import pytest

from gateways.sqs_server.config import MappingConfig
from gateways.sqs_server.mappings import EventSource
from gateways.sqs_server.server import SqsServer
from pump.serving import ServerOptions
from pump.testing.virtual_clock import VirtualClock

from .conftest import BLOCKS_ITS_LOOP, HOLDS, RESISTS, Gate, Project, Start, until
from .fake_engine import FakeEngine, FakeQueue

WAITS = """
    import asyncio
    calls, ends = [], []

    async def on_orders(event, context):
        calls.append(1)
        try:
            await asyncio.Event().wait()
        finally:
            ends.append(context.get_remaining_time_in_millis())
"""


@pytest.fixture
def clock() -> VirtualClock:
    """Does not wait long for a function that holds its thread on purpose."""
    return VirtualClock(thread_patience_s=0.05)


async def test_when_a_coroutine_takes_too_long_then_it_is_cancelled_and_the_batch_failed(
    project: Project,
    engine: FakeEngine,
    queue: FakeQueue,
    clock: VirtualClock,
    start: Start,
    caplog: pytest.LogCaptureFixture,
) -> None:
    project.write(WAITS)
    engine.send(queue, "a")

    mapping = start(queue, timeout_s=5)
    await until(lambda: project.called() == 1)
    await clock.advance(4.9)
    assert mapping.counters.failed == 0
    await clock.advance(0.1)
    await until(lambda: mapping.counters.failed == 1)

    assert project.state().ends == [0]
    assert engine.hidden(queue) == ["a"]
    assert "HandlerTimeout" in caplog.text
    assert "function.abandoned" not in caplog.text


async def test_when_cancelled_then_what_runs_is_abandoned_and_comes_again(
    project: Project, engine: FakeEngine, queue: FakeQueue, clock: VirtualClock
) -> None:
    project.write(WAITS)
    engine.send(queue, "a")
    config = MappingConfig(queue="orders", function=f"{project.module}:on_orders")
    mapping = EventSource(engine, queue, config, clock, root=project.folder)
    running = asyncio.create_task(mapping.run())
    await until(lambda: project.called() == 1)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert engine.hidden(queue) == ["a"]
    assert mapping.counters.failed == 0
    await until(lambda: len(project.state().ends) == 1)


@pytest.mark.parametrize("source", [HOLDS, BLOCKS_ITS_LOOP, RESISTS])
async def test_when_a_function_cannot_be_stopped_then_it_counts_as_running_until_it_ends(
    source: str,
    project: Project,
    engine: FakeEngine,
    queue: FakeQueue,
    clock: VirtualClock,
    start: Start,
    caplog: pytest.LogCaptureFixture,
) -> None:
    project.write(source)
    engine.send(queue, "a", "b", "c")

    mapping = start(queue, batch_size=1, max_concurrency=2, timeout_s=5)
    await until(lambda: project.called() == 2)
    await clock.advance(7)
    assert (mapping.counters.invocations, mapping.counters.failed) == (2, 2)
    assert caplog.text.count("function.abandoned") == 2
    project.state().go_on.set()
    await until(lambda: mapping.counters.succeeded == 1)

    assert project.state().calls == [1, 1, 1]
    assert queue.bodies == ["a", "b"] == engine.hidden(queue)


async def test_when_invocations_are_at_their_limit_then_nothing_more_is_received(
    project: Project, engine: FakeEngine, queue: FakeQueue, clock: VirtualClock, start: Start
) -> None:
    project.write(HOLDS)
    engine.send(queue, *"abcd")

    mapping = start(queue, batch_size=1, max_concurrency=2, timeout_s=20)
    await until(lambda: project.called() == 2)
    await clock.advance(10)
    assert project.called() == 2
    assert engine.hidden(queue) == ["a", "b"]
    project.state().go_on.set()
    await until(lambda: mapping.counters.succeeded == 4)

    assert queue.bodies == []


async def test_when_importing_the_changed_code_takes_too_long_then_it_is_not_called_any_more(
    project: Project,
    engine: FakeEngine,
    queue: FakeQueue,
    clock: VirtualClock,
    start: Start,
    gate: Gate,
) -> None:
    project.write(HOLDS)
    mapping = start(queue, timeout_s=5)
    await until(lambda: clock.next_due_in_s() is not None)  # It polls.

    project.write(gate.source + HOLDS)
    engine.send(queue, "a")
    await until(gate.was_reached)
    await clock.advance(5)
    assert mapping.counters.failed == 1
    await mapping.drain()
    gate.open()
    await until(project.is_imported)
    await until(lambda: gate.thread is not None and not gate.thread.is_alive())

    assert project.called() == 0
    assert engine.hidden(queue) == ["a"]


async def test_when_a_module_hangs_while_it_is_imported_then_loading_can_be_cancelled(
    project: Project, engine: FakeEngine, queue: FakeQueue, clock: VirtualClock, gate: Gate
) -> None:
    project.write(gate.source + HOLDS)
    config = MappingConfig(queue="orders", function=f"{project.module}:on_orders")
    mapping = EventSource(engine, queue, config, clock, root=project.folder)
    loading = asyncio.create_task(mapping.load())
    await until(gate.was_reached)

    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading

    # Python waits at its end for threads that are not daemons.
    assert gate.thread is not None
    assert gate.thread.daemon
    gate.open()
    await until(lambda: gate.thread is not None and not gate.thread.is_alive())


async def test_when_a_module_hangs_while_it_is_imported_then_opening_the_server_can_be_cancelled(
    project: Project, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write(gate.source + HOLDS)
    config = project.folder / "local.toml"
    function = f"{project.module}:on_orders"
    mapping = f'[queues.orders]\n[[mappings]]\nqueue = "orders"\nfunction = "{function}"\n'
    await asyncio.to_thread(config.write_text, mapping)
    monkeypatch.chdir(project.folder)
    opening = asyncio.create_task(SqsServer(ServerOptions(port=0, config=config)).open())
    await until(gate.was_reached)

    opening.cancel()

    with pytest.raises(asyncio.CancelledError):
        await opening

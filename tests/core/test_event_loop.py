"""The event loop of our entry points: uvloop where it is installed, asyncio's where not."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import suppress

import pytest

from pump import event_loop
from pump.clock import yield_to_loop

uvloop = pytest.importorskip("uvloop")


LOOPS = pytest.mark.parametrize("is_there", [True, False], ids=["uvloop", "asyncio"])


async def the_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_when_uvloop_is_installed_then_it_runs_the_program() -> None:
    assert isinstance(event_loop.run(the_loop()), uvloop.Loop)


def test_when_uvloop_is_missing_then_asyncio_runs_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)

    assert not isinstance(event_loop.run(the_loop()), uvloop.Loop)


@LOOPS
@pytest.mark.parametrize("end", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
def test_when_a_task_exits_then_all_that_wait_are_closed_first(
    monkeypatch: pytest.MonkeyPatch, is_there: bool, end: BaseException
) -> None:
    if not is_there:
        monkeypatch.setitem(sys.modules, "uvloop", None)
    closed: list[str] = []

    async def leave() -> None:
        raise end

    async def main() -> None:
        try:
            async with asyncio.TaskGroup() as outer:
                outer.create_task(wait())
                async with asyncio.TaskGroup() as inner:
                    inner.create_task(leave())
                    await asyncio.Event().wait()
        finally:
            await yield_to_loop()
            closed.append("main")

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await yield_to_loop()
            closed.append("other")

    with pytest.raises(type(end)) as ended:
        event_loop.run(main())

    assert ended.value is end
    assert sorted(closed) == ["main", "other"]


@LOOPS
def test_when_interrupted_while_an_interrupt_unwinds_then_it_ends_at_once(
    monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    """Ctrl-C must get through where closing hangs."""
    if not is_there:
        monkeypatch.setitem(sys.modules, "uvloop", None)

    async def interrupt() -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(interrupt())
                await asyncio.Event().wait()
        finally:
            asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
            await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        event_loop.run(main())


@LOOPS
def test_when_several_tasks_interrupt_then_all_that_wait_are_closed_first(
    monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    """R93: a handler's own tasks raise an interrupt each, and none of them is Ctrl-C."""
    if not is_there:
        monkeypatch.setitem(sys.modules, "uvloop", None)
    closed: list[str] = []

    async def interrupt() -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(3):
                    group.create_task(interrupt())
                await asyncio.Event().wait()
        finally:
            await yield_to_loop()
            closed.append("main")

    with pytest.raises(KeyboardInterrupt):
        event_loop.run(main())

    assert closed == ["main"]


@LOOPS
def test_when_the_loop_is_stopped_then_all_that_wait_are_closed_first(
    monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    """R93."""
    if not is_there:
        monkeypatch.setitem(sys.modules, "uvloop", None)
    closed: list[str] = []

    async def main() -> None:
        try:
            asyncio.get_running_loop().stop()
            await asyncio.Event().wait()
        finally:
            await yield_to_loop()
            closed.append("main")

    with pytest.raises(RuntimeError, match="stopped before"):
        event_loop.run(main())

    assert closed == ["main"]


@LOOPS
def test_when_a_task_never_ends_then_the_program_does(
    monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    """R93: what swallows every cancellation is left behind."""
    if not is_there:
        monkeypatch.setitem(sys.modules, "uvloop", None)
    monkeypatch.setattr(event_loop, "_PATIENCE_S", 0.05)
    stubborn: list[asyncio.Task[None]] = []

    async def never_end() -> None:
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    async def main() -> str:
        stubborn.append(asyncio.create_task(never_end()))
        await yield_to_loop()
        return "done"

    assert event_loop.run(main()) == "done"
    assert not stubborn[0].done()
    task = stubborn.pop()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    task.get_coro().close()

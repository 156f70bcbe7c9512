"""The event loop of our entry points: uvloop where it is installed, asyncio's where not."""

from __future__ import annotations

import asyncio
import sys

import pytest

from pump import event_loop
from pump.clock import breathe

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
def test_when_a_task_exits_then_all_that_wait_are_closed_first(
    monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    if not is_there:
        monkeypatch.setitem(sys.modules, "uvloop", None)
    closed: list[str] = []

    async def leave() -> None:
        raise SystemExit(3)

    async def main() -> None:
        try:
            async with asyncio.TaskGroup() as outer:
                outer.create_task(wait())
                async with asyncio.TaskGroup() as inner:
                    inner.create_task(leave())
                    await asyncio.Event().wait()
        finally:
            await breathe()
            closed.append("main")

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await breathe()
            closed.append("other")

    with pytest.raises(SystemExit) as ended:
        event_loop.run(main())

    assert ended.value.code == 3
    assert sorted(closed) == ["main", "other"]

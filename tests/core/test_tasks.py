"""Background tasks: what was begun ends, whoever is cancelled."""

from __future__ import annotations

import asyncio

import pytest

from pump.errors import ConnectionFailed
from pump.tasks import BackgroundTasks
from pump.testing import VirtualClock


async def test_when_tasks_start_others_then_finishing_waits_for_them_too() -> None:
    clock, tasks, ended = VirtualClock(), BackgroundTasks("test"), list[str]()

    async def second() -> None:
        await clock.sleep(1)
        ended.append("second")

    async def first() -> None:
        await clock.sleep(1)
        tasks.start(second(), "second")
        ended.append("first")

    tasks.start(first(), "first")
    current = asyncio.create_task(tasks.finish_current())
    finishing = asyncio.create_task(tasks.finish())
    await clock.advance(1)
    after_one = (current.done(), finishing.done(), [*ended])
    await clock.advance(1)

    assert after_one == (True, False, ["first"])
    assert finishing.done()
    assert ended == ["first", "second"]


async def test_when_tasks_are_aborted_then_each_is_cancelled_and_has_cleaned_up() -> None:
    tasks, cleaned = BackgroundTasks("test"), list[str]()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("done")

    tasks.start(work(), "work")
    await asyncio.sleep(0)  # noqa: TID251 a yield, not a wait
    await tasks.abort()

    assert cleaned == ["done"]


class Opened:
    def __init__(self) -> None:
        self.is_closed = False

    async def aclose(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_when_the_caller_is_cancelled_then_what_is_opened_meanwhile_is_closed(
    is_cancelled: bool,
) -> None:
    """R40: no lock is left to nobody."""
    clock, tasks, opened = VirtualClock(), BackgroundTasks("test"), Opened()

    async def opening() -> Opened | None:
        await clock.sleep(1)
        return opened

    async def accept() -> Opened | None:
        return await tasks.opened(opening(), Opened.aclose)

    accepting = asyncio.create_task(accept())
    await clock.settle()
    if is_cancelled:
        accepting.cancel()
    await clock.advance(1)

    assert accepting.cancelled() == is_cancelled
    assert opened.is_closed == is_cancelled


async def test_when_opening_fails_or_finds_nothing_then_nothing_is_closed() -> None:
    tasks = BackgroundTasks("test")

    async def nothing() -> Opened | None:
        return None

    async def failing() -> Opened | None:
        raise ConnectionFailed("broker", "reset")

    assert await tasks.opened(nothing(), Opened.aclose) is None
    with pytest.raises(ConnectionFailed):
        await tasks.opened(failing(), Opened.aclose)

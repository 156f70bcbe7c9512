"""Signals of the operating system: the first one drains, the second one stops now."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .dispatcher import Dispatcher

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


async def run_until_signalled(dispatcher: Dispatcher, *, until_empty: bool = False) -> None:
    """Run the dispatcher; signals that come meanwhile end it as they should.

    With `until_empty`, whoever cannot be asked whether the queues are empty ends it too, with
    the error: a job that waits for ever would not say why.
    """
    with _ending(dispatcher):
        if not until_empty:
            await dispatcher.run()
            return
        watching = asyncio.create_task(_drain_when_empty(dispatcher), name="until empty")
        try:
            await dispatcher.run()
        finally:
            watching.cancel()
            await asyncio.wait([watching])
        if not watching.cancelled():
            watching.result()


async def _drain_when_empty(dispatcher: Dispatcher) -> None:
    await dispatcher.channels_made.wait()
    try:
        await dispatcher.wait_until_empty()
    finally:
        dispatcher.drain()


@contextmanager
def _ending(dispatcher: Dispatcher) -> Iterator[None]:
    count = 0

    def end() -> None:
        nonlocal count
        count += 1
        if count == 1:
            dispatcher.drain()
        else:
            dispatcher.stop_now()

    with on_signal(end):
        yield


@contextmanager
def on_signal(end: Callable[[], None]) -> Iterator[None]:
    """Call `end` on the event loop for each request of the system's to end the program."""
    loop = asyncio.get_running_loop()
    installed = []
    for each in _SIGNALS:
        try:
            loop.add_signal_handler(each, end)
        except (ValueError, NotImplementedError, RuntimeError):
            continue  # Not the main thread, or no such signal here: whoever runs us ends us.
        installed.append(each)
    try:
        yield
    finally:
        for each in installed:
            loop.remove_signal_handler(each)

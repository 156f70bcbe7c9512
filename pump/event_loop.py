"""Event loop: uvloop's where it is installed, asyncio's where not. One place that chooses.

Only for programs whose entry point is ours (`App.run`, `pump run`, a task on Spark). Who runs an
app inside a loop of their own has chosen already, and `asyncio.run(app.serve())` does without.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TypeVar

from .dispatcher import Dispatcher
from .observability import vocabulary
from .observability.log import get_logger

_log = get_logger("pump.event_loop")
_T = TypeVar("_T")
_PATIENCE_S = 1.0
"""How long tasks that outlive the program may take to end, once they were cancelled."""


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes the loop; None for asyncio's own.

    On uvloop `pump local` takes a sixth less CPU a message, with shorter tails.
    """
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """As `asyncio.run`, on the loop of our choice; and when a handler ends the program
    (`sys.exit`, or an interrupt that it raises), everything is closed first.
    """
    begun: list[asyncio.Task[Any] | None] = []

    async def noted() -> _T:
        begun.append(asyncio.current_task())
        return await main

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        try:
            return runner.run(noted())
        except BaseException:
            for task in begun:
                assert task is not None
                _unwind(task, runner.get_loop())
            raise
        finally:
            _let_go_of_the_rest(runner.get_loop())


def _unwind(task: asyncio.Task[Any], loop: asyncio.AbstractEventLoop) -> None:
    """Have a task end by a cancellation, with all that it waits for, unless it has ended.

    A loop breaks off at an exit, at each task that waits for the one that raised it, and where a
    handler stops it. Left like that, a gateway would never be closed, and its threads would keep
    the process; with all tasks cancelled at once, nothing would be left to hand messages back.
    Ctrl-C meanwhile comes from no task, and ends this.
    """
    if task.done():
        return
    task.cancel()
    while not task.done():
        running = asyncio.all_tasks(loop)
        try:
            loop.run_until_complete(asyncio.wait([task]))
        except KeyboardInterrupt as interrupt:
            if not any(_raised(each, interrupt) for each in running):
                raise
        except (SystemExit, RuntimeError):
            continue
    if not task.cancelled():
        task.exception()  # Looked at: the exit that goes on says it all.


def _raised(task: asyncio.Task[Any], error: BaseException) -> bool:
    return task.done() and not task.cancelled() and task.exception() is error


def _let_go_of_the_rest(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what still runs, and forget what does not end by it: the runner would wait for it."""
    rest = asyncio.all_tasks(loop)
    for task in rest:
        task.cancel()
    if rest:
        with suppress(SystemExit, KeyboardInterrupt, RuntimeError):
            loop.run_until_complete(asyncio.wait(rest, timeout=_PATIENCE_S))
    left = asyncio.all_tasks(loop)
    for task in left:
        asyncio.tasks._unregister_task(task)
        _keep_for_ever(task)
    if left:
        _log.warning(vocabulary.TASK_ABANDONED, count=len(left))


def _keep_for_ever(task: asyncio.Task[Any]) -> None:
    """Python closes a coroutine that it lets go of, and one that swallows that too (`except:` in a
    loop) never gives it the processor back, not even at the end of the program.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(task))


# Signals of the operating system: the first one drains, the second one stops now.

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_MOST_UNHEARD = 3


async def run_until_signalled(dispatcher: Dispatcher, *, until_empty: bool = False) -> None:
    """Run the dispatcher; signals that come meanwhile end it as they should.

    With `until_empty`, a gateway that cannot tell whether its queues are empty ends it too, with
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
    unheard = _UnheardSignals()

    def heard() -> None:
        unheard.count = 0
        end()

    for each in _SIGNALS:
        try:
            loop.add_signal_handler(each, heard)
        except (ValueError, NotImplementedError, RuntimeError):
            continue  # Not the main thread, or no such signal here: the embedding program ends us.
        unheard.watch(each)
        installed.append(each)
    try:
        yield
    finally:
        for each in installed:
            loop.remove_signal_handler(each)


class _UnheardSignals:
    """Ends the process at the third signal of which the event loop, blocked by a handler, has heard
    none: Python runs a signal's function between two instructions, whatever the loop does.
    """

    def __init__(self) -> None:
        self.count = 0

    def watch(self, number: int) -> None:
        """Count these too; the loop's own function for them is called as before."""
        of_the_loop = signal.getsignal(number)

        def count(number: int, frame: FrameType | None) -> None:
            self.count += 1
            if self.count == _MOST_UNHEARD:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            if callable(of_the_loop):
                of_the_loop(number, frame)

        # Without SA_RESTART, which loops set: a blocking `recv` would begin anew before that.
        signal.signal(number, count)

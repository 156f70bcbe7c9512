"""A call: a function's run in a thread; what came of it is a value.

All that is the function's happens there, its event loop, the reading of its answer and the words
for its errors included: any of it may block for ever, and must not do so on the server's loop.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, Final

import attrs

from .context import LambdaContext
from .failures import Contained, FunctionExited, describe, trace_of
from .function_code import FunctionCode
from .response import MalformedResponse, as_json

_OURS: Final = (FunctionExited, MalformedResponse)
"""Errors whose text says it all; a traceback would show nothing of the function."""


@attrs.frozen
class Returned:
    """It came to its end; `answer` is what Lambda would have got, as JSON's values."""

    answer: Any


@attrs.frozen
class Failed:
    """It raised, ran out of time, or returned what cannot be read."""

    error: str
    traceback: str | None = attrs.field(default=None, repr=False)
    still_running: Future[Any] | None = None
    """A thread that goes on: nothing can stop it."""


class Call:
    """One call of a function: `run` it in a thread, `cancel` it from any other."""

    def __init__(self, code: FunctionCode, event: dict[str, Any], context: LambdaContext) -> None:
        self._code = code
        self._event = event
        self._context = context
        self._lock = threading.Lock()
        self._is_cancelled = False
        self._stop: Callable[[], object] | None = None

    def run(self) -> Returned | Failed:
        """Call the function as its files are now, and wait for its end. Raises nothing.

        An error is no exception here: a future could not carry a StopIteration.
        """
        try:
            with Contained(Exception):
                return Returned(as_json(self._run()))
        except _OURS as error:
            return Failed(describe(error))
        except Exception as error:  # broad: a function may raise anything
            return Failed(describe(error), trace_of(error))

    def cancel(self) -> bool:
        """Do not call the function any more; where it runs as a coroutine, cancel that.

        True says so, and that it may end soon. Nothing stops code that blocks.
        """
        with self._lock:
            self._is_cancelled = True
            if self._stop is None:
                return False
            self._stop()
            return True

    def _run(self) -> Any:
        with self._code.edition() as function:
            if self._is_cancelled:
                return None  # Importing the code took all the time there was.
            value = function(self._event, self._context)
            if inspect.isawaitable(value):
                # A loop for each call: what blocks it, blocks nothing else.
                with asyncio.Runner() as runner:
                    value = runner.run(self._await(value))
            return value

    async def _await(self, value: Awaitable[Any]) -> Any:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        with self._lock:
            if self._is_cancelled:
                task.cancel()
            self._stop = lambda: loop.call_soon_threadsafe(task.cancel)
        try:
            # What asyncio lets out of its loop, it also reports as never retrieved.
            with Contained(Exception, asyncio.CancelledError):
                return await value
        finally:
            with self._lock:
                self._stop = None

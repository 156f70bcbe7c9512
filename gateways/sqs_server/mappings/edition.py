"""An edition of a function: what one import of its code gave.

A function may be an object that holds things open, as a Pumphouse app behind Lambda does. Then it
has a `close`, which is called when a newer edition takes its place; calls under way end first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from pump.observability import vocabulary
from pump.observability.log import get_logger

from .failures import Contained, describe

Function = Callable[[Any, Any], Any]

_log = get_logger("gateways.sqs_server")


class Edition:
    """A function to call while it is entered, by any number of threads."""

    def __init__(self, function: Function, target: str) -> None:
        self.function = function
        self._target = target
        self._lock = threading.Lock()
        self._call_count = 0
        self._is_retired = False

    def __enter__(self) -> Function:
        with self._lock:
            self._call_count += 1
        return self.function

    def __exit__(self, *exc_info: object) -> None:
        with self._lock:
            self._call_count -= 1
            is_over = self._is_retired and not self._call_count
        if is_over:
            self._close()

    def retire(self) -> None:
        """Close it, at once or when the last call of it has ended."""
        with self._lock:
            self._is_retired = True
            is_over = not self._call_count
        if is_over:
            self._close()

    def _close(self) -> None:
        close = getattr(self.function, "close", None)
        if not callable(close) or isinstance(self.function, type):
            return
        try:
            with Contained(Exception):
                close()
        except Exception as error:  # broad: it is the function's code, and over
            _log.warning(vocabulary.CLOSE_FAILED, function=self._target, error=describe(error))

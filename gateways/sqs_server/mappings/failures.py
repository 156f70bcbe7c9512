"""Failures of a function's code: kept from ending more than its call, and put into words.

An error's text is made by the function's code as well: it may fail, and belongs into its thread.
"""

from __future__ import annotations

import traceback
from typing import Final

_MAX_CHARS: Final = 20_000
"""Of a text in the log; an error may carry a whole payload."""


class FunctionExited(Exception):
    """The function called `sys.exit`, or raised another error that is meant to end a process; on
    Lambda it does, here it ends the call.
    """


class Contained:
    """Lets these errors pass, and turns all others into FunctionExited.

    Otherwise they end the thread, whose future nobody would ever complete, or an event loop.
    """

    def __init__(self, *passing: type[BaseException]) -> None:
        self._passing = passing

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if error is None or isinstance(error, self._passing):
            return
        if isinstance(error, SystemExit):
            raise FunctionExited(f"the function called sys.exit({error.code!r})") from None
        raise FunctionExited(f"the function raised {describe(error)}") from error


def describe(error: BaseException) -> str:
    """Its name and its text, whatever making that text does."""
    try:
        with Contained(Exception):
            return f"{type(error).__name__}: {error}"[:_MAX_CHARS].removesuffix(": ")
    except Exception:  # broad: a function's error may have any `__str__`
        return f"{type(error).__name__}, whose text cannot be made"


def trace_of(error: BaseException) -> str:
    """Its traceback, as Python prints it: no local variables, which hold message bodies."""
    try:
        with Contained(Exception):
            return "".join(traceback.format_exception(error))[-_MAX_CHARS:]
    except Exception:  # broad: a function's error may have any attributes
        return "its traceback cannot be made"

"""A function that an event-source mapping finds by name; the test says what it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Function = Callable[[Any, Any], Any]
_functions: dict[str, Function] = {}


def be(function: Function) -> None:
    """From now on, do this."""
    _functions["now"] = function


def handler(event: Any, context: Any) -> Any:
    """What the mapping calls."""
    return _functions["now"](event, context)

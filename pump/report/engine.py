"""Engine: what a report needs of whatever runs its SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from .dialect import Dialect
from .scope import Scope
from .source import Source

Rows = Sequence[tuple[Any, ...]]


class EngineFailed(Exception):
    """The engine gave up on a query, as it does on a damaged file."""


class Engine(Protocol):
    """Runs SQL over the views `raw` (the ledger's rows in scope, with `time_us` for `time`) and
    `dead_letters` (when a snapshot was given). Everything raises `EngineFailed`.
    """

    name: str
    dialect: Dialect

    def view(self, name: str, sql: str) -> None:
        """Give a query a name."""

    def keep(self, name: str, sql: str) -> None:
        """Give the result of a query a name, and compute it once."""

    def rows(self, sql: str) -> Rows:
        """What a query yields: few rows, which fit into memory."""


MakeEngine = Callable[[Source, Scope], AbstractContextManager[Engine]]
"""An engine over a source, closed at the end."""

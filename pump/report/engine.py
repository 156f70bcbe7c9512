"""Engine: what a report needs of whatever runs its SQL."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from .fingerprint import LENGTH, MAX_TEXT, REPLACEMENTS, Replacement
from .source import ReportScope, Source

# Dialects: the few places where the SQL of DuckDB and that of Spark differ.


class Dialect(abc.ABC):
    """Expressions of one engine. Only what stands here may differ from one to the other."""

    @abc.abstractmethod
    def hashed(self, *columns: str) -> str:
        """64 bits that tell rows apart by these columns; the engine's own, and never shown."""

    @abc.abstractmethod
    def replaced(self, text: str, replacement: Replacement) -> str:
        """A text with everything replaced that was found."""

    @abc.abstractmethod
    def literal(self, text: str) -> str:
        """A text as a constant."""

    def normalised(self, text: str) -> str:
        """What `fingerprint.normalised` does."""
        expression = f"substr({text}, 1, {MAX_TEXT})"
        for each in REPLACEMENTS:
            expression = self.replaced(expression, each)
        return expression

    def fingerprint(self, text: str) -> str:
        """What `fingerprint.fingerprint_of` does."""
        return f"substr(md5({self.normalised(text)}), 1, {LENGTH})"


class DuckdbDialect(Dialect):
    """DuckDB's."""

    def hashed(self, *columns: str) -> str:
        return f"hash({', '.join(columns)})"

    def replaced(self, text: str, replacement: Replacement) -> str:
        behind = rf"\1{replacement.text}" if replacement.keeps_first else replacement.text
        return f"regexp_replace({text}, '{replacement.pattern}', '{behind}', 'g')"

    def literal(self, text: str) -> str:
        quoted = text.replace("'", "''")
        return f"'{quoted}'"


class SparkDialect(Dialect):
    """Spark's."""

    def hashed(self, *columns: str) -> str:
        return f"xxhash64({', '.join(columns)})"

    def replaced(self, text: str, replacement: Replacement) -> str:
        behind = f"$1{replacement.text}" if replacement.keeps_first else replacement.text
        return f"regexp_replace({text}, r'{replacement.pattern}', '{behind}')"

    def literal(self, text: str) -> str:
        quoted = text.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{quoted}'"


Rows = Sequence[tuple[Any, ...]]


class EngineFailed(Exception):
    """The engine gave up on a query, as it does on a damaged file."""


class SqlEngine(Protocol):
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


MakeEngine = Callable[[Source, ReportScope], AbstractContextManager[SqlEngine]]
"""An engine over a source, closed at the end."""

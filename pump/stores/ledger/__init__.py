"""The ledger of outcomes: what became of every delivery, for people who ask later.

`SqliteLedger` is one file, for the small case; `ParquetLedger` a folder of Parquet files by day,
for everything that reads such folders; `PostgresLedger` one table for all machines. `ledger_from`
makes one from a path or a URL. Each is loaded when it is first asked for: an app without a ledger
pays for none of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from ...clock import Clock
from ...events import Event

if TYPE_CHECKING:
    from .parquet_ledger import ParquetLedger
    from .postgres_ledger import PostgresLedger
    from .reading import ledger_from
    from .sqlite_ledger import SqliteLedger

__all__ = ["Ledger", "ParquetLedger", "PostgresLedger", "SqliteLedger", "ledger_from"]

_HOMES = {
    "ParquetLedger": "parquet_ledger",
    "PostgresLedger": "postgres_ledger",
    "SqliteLedger": "sqlite_ledger",
    "ledger_from": "reading",
}


class Ledger(Protocol):
    """Keeps a row for every outcome."""

    async def open(self, gateway: str, clock: Clock) -> None:
        """Be ready to record. Raises `StorageFailed` when it never can."""

    def record(self, event: Event) -> None:
        """Note an event: an observer like any other. Writes nothing itself, and never raises."""

    async def aclose(self) -> None:
        """Write what is left."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)

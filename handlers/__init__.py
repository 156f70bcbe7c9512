"""Handlers: what applications subclass, and the middleware that may surround it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pump.stores.inbox import Inbox, MemoryInbox
from pump.stores.sqlite_inbox import SqliteInbox

from .base import Handler, NoContext, use
from .middleware import FALLBACK_ERROR, Fallback, LogHandling, Retry, Timeout, Validate
from .once_only import DuplicateMessage, OnceOnly

if TYPE_CHECKING:
    from pump.stores.postgres_inbox import PostgresInbox
    from pump.stores.sqlalchemy_inbox import SqlAlchemyInbox

__all__ = [
    "FALLBACK_ERROR",
    "DuplicateMessage",
    "Fallback",
    "Handler",
    "Inbox",
    "LogHandling",
    "MemoryInbox",
    "NoContext",
    "OnceOnly",
    "PostgresInbox",
    "Retry",
    "SqlAlchemyInbox",
    "SqliteInbox",
    "Timeout",
    "Validate",
    "use",
]

_HOMES = {
    "PostgresInbox": "pump.stores.postgres_inbox",
    "SqlAlchemyInbox": "pump.stores.sqlalchemy_inbox",
}


def __getattr__(name: str) -> Any:
    # Only programs that keep their inbox there load what it needs.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)

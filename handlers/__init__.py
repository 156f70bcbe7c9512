"""Handlers: what applications subclass, and the middleware that may surround it."""

from __future__ import annotations

from pump.stores.inbox import Inbox, MemoryInbox
from pump.stores.sqlite_inbox import SqliteInbox

from .base import Handler, NoContext, use
from .middleware import FALLBACK_ERROR, Fallback, LogHandling, Retry, Timeout, Validate
from .once_only import DuplicateMessage, OnceOnly

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
    "Retry",
    "SqliteInbox",
    "Timeout",
    "Validate",
    "use",
]

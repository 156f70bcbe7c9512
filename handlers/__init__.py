"""Handlers: what applications subclass, and the middleware that may surround it."""

from __future__ import annotations

from pump.stores.inbox import Inbox, MemoryInbox
from pump.stores.sqlite_inbox import SqliteInbox

from .base import Handler, NoContext, use
from .fallback import FALLBACK_ERROR, Fallback
from .log import LogHandling
from .once_only import DuplicateMessage, OnceOnly
from .retry import Retry
from .timeout import Timeout
from .validate import Validate

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

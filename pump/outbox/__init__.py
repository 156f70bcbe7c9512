"""The outbox: messages that are written in the user's own transaction, and sent once it commits."""

from .postgres import PostgresOutbox
from .sqlite import SqliteOutbox
from .store import DestinationStats, Outbox, SetAside

__all__ = ["DestinationStats", "Outbox", "PostgresOutbox", "SetAside", "SqliteOutbox"]

"""The outbox: messages that are written in the user's own transaction, and sent once it commits."""

from .postgres import PostgresOutbox

__all__ = ["PostgresOutbox"]

"""The queue engine of the server: SQS's semantics over a store."""

from .engine import Engine
from .entries import NullStore, Store
from .queue import MAX_IN_FLIGHT_COUNT, Queue
from .record import MoveStatus, MoveTask, ReceiptProblem
from .store import SqliteStore, open_store

__all__ = [
    "MAX_IN_FLIGHT_COUNT",
    "Engine",
    "MoveStatus",
    "MoveTask",
    "NullStore",
    "Queue",
    "ReceiptProblem",
    "SqliteStore",
    "Store",
    "open_store",
]

"""The queue engine of the server: SQS's semantics over a store."""

from .engine import Engine
from .entries import NullStore, Store
from .moves import MoveStatus, MoveTask
from .queue import MAX_IN_FLIGHT_COUNT, Queue
from .steps import ReceiptProblem
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

"""The queue engine of the server: SQS's semantics over a store."""

from .engine import SqsEngine
from .entries import NullStore, Store
from .queue import MAX_IN_FLIGHT_COUNT, Queue
from .record import MoveStatus, MoveTask, ReceiptProblem
from .store import SqsStore, open_store

__all__ = [
    "MAX_IN_FLIGHT_COUNT",
    "MoveStatus",
    "MoveTask",
    "NullStore",
    "Queue",
    "ReceiptProblem",
    "SqsEngine",
    "SqsStore",
    "Store",
    "open_store",
]

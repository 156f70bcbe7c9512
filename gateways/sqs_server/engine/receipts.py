"""Receipts: which message one stands for, and whether it still counts.

Standard queues are lenient, as AWS is: any receipt of a message deletes it, or changes its
visibility, late or not and whoever has it by now. FIFO queues honour only the newest receipt,
and only while its message is in flight.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .identity import Identity, Receipt, read_receipt, receipt_name
from .record import IN_FLIGHT, LIMBO, VISIBLE, Record
from .state import QueueState
from .steps import Deletion, ReceiptProblem

MAX_IN_FLIGHT_S = 43_200
"""SQS lets a message be in flight for twelve hours in total."""


class Receipts:
    """Reads the receipts of one queue."""

    def __init__(self, number: int, identity: Identity, state: QueueState) -> None:
        self._name = receipt_name(number)
        self._identity = identity
        self._state = state

    def to_delete(self, receipts: Iterable[str]) -> Deletion:
        """Find the messages, and send them to limbo."""
        deletion = Deletion()
        records, problems, is_fifo = deletion.records, deletion.problems, self._state.is_fifo
        for text in receipts:
            found = self._find(text)
            if not isinstance(found, tuple):
                problems.append(found)
            elif is_fifo and not self._is_current(*found):
                problems.append(ReceiptProblem.EXPIRED)
            else:
                problems.append(None)
                records.append(found[0])
        self._state.send_to_limbo(records)
        return deletion

    def change(
        self, changes: Sequence[tuple[str, int]], *, now_s: float
    ) -> tuple[list[Record], list[ReceiptProblem | None]]:
        """Find the messages, hide each for its time from now on, and return them."""
        valid: list[tuple[Record, float]] = []
        problems: list[ReceiptProblem | None] = []
        for text, visibility_s in changes:
            found = self._for_change(text, visibility_s, now_s)
            if isinstance(found, Record):
                valid.append((found, visibility_s))
                problems.append(None)
            else:
                problems.append(found)
        self._state.change(valid, now_s=now_s)
        return [record for record, _ in valid], problems

    def _for_change(self, text: str, visibility_s: int, now_s: float) -> Record | ReceiptProblem:
        found = self._find(text)
        if isinstance(found, ReceiptProblem):
            return found
        record, receipt = found
        if record.phase == LIMBO:
            return ReceiptProblem.GONE
        if self._state.is_fifo:
            if not self._is_current(record, receipt):
                return ReceiptProblem.EXPIRED
        elif record.phase not in (IN_FLIGHT, VISIBLE):
            return ReceiptProblem.NOT_IN_FLIGHT
        taken_s = now_s if record.hold is None else record.hold.taken_s
        if now_s + visibility_s - taken_s > MAX_IN_FLIGHT_S:
            return ReceiptProblem.BEYOND_LIMIT
        return record

    def _find(self, text: str) -> tuple[Record, Receipt] | ReceiptProblem:
        receipt = read_receipt(text)
        if receipt is None:
            return ReceiptProblem.MALFORMED
        if receipt[1] != self._name:
            return ReceiptProblem.OTHER_QUEUE
        record = self._state.records.get(receipt[2])
        return ReceiptProblem.GONE if record is None else (record, receipt)

    def _is_current(self, record: Record, receipt: Receipt) -> bool:
        # In limbo, with a hold: its delete is being written, and may be asked for once more.
        is_held = record.phase == IN_FLIGHT or (record.phase == LIMBO and record.hold is not None)
        boot, _, _, receive_count = receipt
        if not is_held or receive_count != record.receive_count or record.hold is None:
            return False
        return boot == (record.hold.holder or self._identity.boot)

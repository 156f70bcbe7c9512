"""Sending one batch of the outbox, and what an error says: of the message, or of its destination.

| the error                                | says                     | and then                   |
|------------------------------------------|--------------------------|----------------------------|
| too large, unreadable, not supported     | never, for this message  | it is set aside            |
| no such queue, no access, no connection  | not now, for any message | all wait, with pauses      |
| anything else                            | nothing certain          | it is sent alone; refused  |
|                                          |                          | alone, it is counted, and  |
|                                          |                          | set aside after a while    |
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from enum import Enum, auto
from math import ceil
from typing import Final

import attrs

from ..errors import (
    AccessDenied,
    ConnectionFailed,
    CorruptedMessage,
    CredentialsExpired,
    CryptoError,
    MappingError,
    MessageTooLarge,
    PoolExhausted,
    QueueMismatch,
    QueueNotFound,
    SendFailed,
    StorageFailed,
    Throttled,
    UnsupportedOperation,
    text_of,
)
from ..message import Message
from ..stores.packing import is_checked, unpack, what_changed
from .store import Relayed, WaitingRow

MAX_ATTEMPTS: Final = 5
_MAX_REASON: Final = 500
_MAX_IN_A_ROW: Final = 3
"""So many messages refused for an unknown reason, and none accepted: it is the destination."""

Send = Callable[[Sequence[Message], float], Awaitable[object]]
"""Sends messages with a delay, in seconds; what it raises is a producer's."""


class Fault(Enum):
    """What an error of a send means."""

    MESSAGE = auto()
    DESTINATION = auto()
    UNKNOWN = auto()


_OF_MESSAGE: Final = (MessageTooLarge, UnsupportedOperation, MappingError, CryptoError)
_OF_DESTINATION: Final = (
    *(ConnectionFailed, Throttled, PoolExhausted, CredentialsExpired, StorageFailed),
    *(QueueNotFound, QueueMismatch, AccessDenied, TimeoutError, OSError),
)


def fault_of(error: Exception) -> Fault:
    """Whether the message can ever be sent, or any other can be now."""
    if isinstance(error, _OF_MESSAGE):
        return Fault.MESSAGE
    return Fault.DESTINATION if isinstance(error, _OF_DESTINATION) else Fault.UNKNOWN


@attrs.frozen
class _Ready:
    row: WaitingRow
    message: Message


@attrs.define
class _Round:
    """What has become of a batch so far."""

    is_time_up: Callable[[], bool]
    sent: list[WaitingRow] = attrs.field(factory=list)
    refused: list[WaitingRow] = attrs.field(factory=list)
    set_aside: list[tuple[WaitingRow, str]] = attrs.field(factory=list)
    fault: Exception | None = None
    held: set[int] = attrs.field(factory=set)
    """Lanes of which a row waits on: those behind it do too."""
    refused_in_a_row: int = 0
    is_partial: bool = False

    def may_call(self) -> bool:
        """Whether another call may begin."""
        if self.fault is not None:
            return False
        self.is_partial = self.is_partial or self.is_time_up()
        return not self.is_partial

    def accept(self, batch: Sequence[_Ready]) -> None:
        self.sent += [each.row for each in batch]
        self.refused_in_a_row = 0

    def judge(self, row: WaitingRow, error: Exception) -> None:
        """One message was refused, and it was no other's doing."""
        fault = fault_of(error)
        is_over = fault is Fault.UNKNOWN and row.attempts + 1 >= MAX_ATTEMPTS
        if fault is Fault.MESSAGE or is_over:
            self.set_aside.append((row, reason_of(error)))
            return
        if row.lane is not None:
            self.held.add(row.lane)
        if fault is Fault.DESTINATION:
            self.fault = error
            return
        self.refused.append(row)
        self.refused_in_a_row += 1
        if self.refused_in_a_row >= _MAX_IN_A_ROW:
            self.fault = error

    def relayed(self) -> Relayed:
        return Relayed(
            sent=self.sent,
            refused=self.refused,
            set_aside=self.set_aside,
            fault=self.fault,
            is_partial=self.is_partial,
        )


async def send_batch(
    rows: Sequence[WaitingRow], send: Send, *, is_time_up: Callable[[], bool]
) -> Relayed:
    """Send rows in their order, as far as that goes before the time is up. Cancelled, nothing is
    known of them.
    """
    done = _Round(is_time_up)
    ready = []
    for row in rows:
        try:
            ready.append(_Ready(row, message_in(row)))
        except MappingError as error:
            done.set_aside.append((row, reason_of(error)))
    for delay_s, batch in _by_delay(ready):
        await _send(batch, delay_s, send, done)
    return done.relayed()


async def _send(batch: Sequence[_Ready], delay_s: float, send: Send, done: _Round) -> None:
    """One call; where it fails for one of several, halves of it."""
    batch = [each for each in batch if each.row.lane is None or each.row.lane not in done.held]
    if not batch or not done.may_call():
        return
    try:
        await send([each.message for each in batch], delay_s)
    except SendFailed as error:
        _note_refusals(batch, dict(error.failures), done)
    except Exception as error:  # broad: whatever a gateway raises, the rows wait on
        if fault_of(error) is Fault.DESTINATION or len(batch) == 1:
            done.judge(batch[0].row, error)
            return
        middle = len(batch) // 2
        await _send(batch[:middle], delay_s, send, done)
        await _send(batch[middle:], delay_s, send, done)
    else:
        done.accept(batch)


def _note_refusals(batch: Sequence[_Ready], failures: dict[str, Exception], done: _Round) -> None:
    done.accept([each for each in batch if each.row.id not in failures])
    for each in batch:
        error = failures.get(each.row.id)
        if error is not None:
            done.judge(each.row, error)


def message_in(row: WaitingRow) -> Message:
    """What was posted; `MappingError` where it is that no more."""
    message = unpack(row.packed)
    detail = what_changed(row.packed) if is_checked(row.packed) else "its checksum is missing"
    if detail:
        raise CorruptedMessage(message.type, detail)
    return message


def reason_of(error: Exception) -> str:
    """Why a row was set aside, in a line."""
    return " ".join(f"{type(error).__name__}: {text_of(error)}".split())[:_MAX_REASON]


def _by_delay(ready: Sequence[_Ready]) -> Iterator[tuple[float, list[_Ready]]]:
    """What one call can send. Where there are lanes, every row keeps its place."""
    is_ordered = any(each.row.lane is not None for each in ready)
    runs: list[tuple[float, list[_Ready]]] = []
    by_delay: dict[float, list[_Ready]] = {}
    for each in ready:
        delay_s = rounded_up(each.row.delay_s)
        if is_ordered:
            if not runs or runs[-1][0] != delay_s:
                runs.append((delay_s, []))
            runs[-1][1].append(each)
        else:
            by_delay.setdefault(delay_s, []).append(each)
    yield from runs or by_delay.items()


def rounded_up(delay_s: float) -> float:
    """A delay that others share; never less than is left of it."""
    step_s = 1.0 if delay_s > 10 else 0.1
    return round(ceil(delay_s / step_s) * step_s, 1)

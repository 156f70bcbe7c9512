"""Timing: the context managers around what is measured.

Classes, not generators: one of these is made for every message.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ..errors import SendFailed
from ..message import Message
from ..outcome import Outcome
from .failure_names import failure_name, is_failed

if TYPE_CHECKING:
    from .metrics import Metrics, ReceiverMeters, SenderMeters


class Process:
    """One delivery in the hands of its handlers."""

    __slots__ = ("_began_s", "_failure", "_meters", "_metrics")

    def __init__(self, metrics: Metrics, meters: ReceiverMeters) -> None:
        self._metrics = metrics
        self._meters = meters
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self._began_s = self._metrics.now_s()
        return self

    def ended(self, outcome: Outcome, error: BaseException | None) -> None:
        if error is not None and is_failed(outcome, error):
            self._failure = error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        took_s = self._metrics.now_s() - self._began_s
        failure = self._failure if error is None else error
        if failure is None:
            self._meters.process.record(took_s)
        else:
            _note_failure(self._metrics, "process", self._meters.queue, failure, took_s)


class Settle:
    """One settle call."""

    __slots__ = ("_began_s", "_meters", "_metrics")

    def __init__(self, metrics: Metrics, meters: ReceiverMeters) -> None:
        self._metrics = metrics
        self._meters = meters

    def __enter__(self) -> None:
        self._began_s = self._metrics.now_s()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        took_s = self._metrics.now_s() - self._began_s
        if error is None:
            self._meters.settle.record(took_s)
        else:
            _note_failure(self._metrics, "settle", self._meters.queue, error, took_s)


class Send:
    """One send. What was refused was not sent; a copy of a rejected message counts as rejected,
    and whoever routes it tells of its failure.
    """

    __slots__ = ("_began_s", "_is_copy", "_messages", "_meters", "_metrics")

    def __init__(
        self, metrics: Metrics, meters: SenderMeters, messages: Sequence[Message], is_copy: bool
    ) -> None:
        self._metrics = metrics
        self._meters = meters
        self._messages = messages
        self._is_copy = is_copy

    def __enter__(self) -> Sequence[Message]:
        self._began_s = self._metrics.now_s()
        return self._messages

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        took_s = self._metrics.now_s() - self._began_s
        if error is None:
            self._meters.send.record(took_s)
        else:
            self._note_failed(error, took_s)
        self._meters.sent.value += len(self._messages) - _refused_count(self._messages, error)

    def _note_failed(self, error: BaseException, took_s: float) -> None:
        metrics, queue = self._metrics, self._meters.queue
        if self._is_copy:
            metrics.histogram("send", queue, failure_name(error)).record(took_s)
        else:
            _note_failure(metrics, "send", queue, error, took_s)


def _refused_count(messages: Sequence[Message], error: BaseException | None) -> int:
    if error is None:
        return 0
    return len(error.failures) if isinstance(error, SendFailed) else len(messages)


def _note_failure(
    metrics: Metrics, operation: str, queue: str, error: BaseException, took_s: float
) -> None:
    metrics.histogram(operation, queue, failure_name(error)).record(took_s)
    metrics.failed(operation, queue, error)

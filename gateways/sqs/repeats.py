"""Repeats: on a FIFO queue, a receive whose answer was lost is asked again by its own name.

SQS then gives the same messages once more, instead of leaving their groups locked until the
leases end. It remembers an attempt for five minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs

from pump.errors import ConnectionFailed
from pump.ids import new_id

_MEMORY_S = 300.0


@attrs.frozen
class Attempt:
    """One receive, by name. Its repetition asks for as many messages as it did."""

    name: str
    max_count: int
    asked_at_s: float


class Repeats:
    """The attempts of one consumer that got no answer."""

    def __init__(self, *, lease_s: float) -> None:
        # Past the lease the messages are anybody's, and SQS refuses the repetition.
        self._memory_s = min(_MEMORY_S, lease_s)
        self._unanswered: list[Attempt] = []

    def next(self, max_count: int, now_s: float) -> Attempt:
        """An attempt that had no answer and asked for no more than this; else a new one."""
        self._unanswered = [
            each for each in self._unanswered if now_s - each.asked_at_s < self._memory_s
        ]
        for attempt in self._unanswered:
            if attempt.max_count <= max_count:
                self._unanswered.remove(attempt)
                return attempt
        return Attempt(new_id(), max_count, now_s)

    @contextmanager
    def asking(self, attempt: Attempt, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The request by the attempt's name; remembered when no answer comes."""
        try:
            yield {
                **request,
                "MaxNumberOfMessages": attempt.max_count,
                "ReceiveRequestAttemptId": attempt.name,
            }
        except (ConnectionFailed, asyncio.CancelledError):
            self._unanswered.append(attempt)
            raise

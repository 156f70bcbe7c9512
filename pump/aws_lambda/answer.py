"""Answer: what a function returns for an event. Pure.

Every record counts as failed until its message is done for: whatever goes wrong on the way, and
whenever the answer is asked for, nothing that was not handled is removed.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ports import PushedRecord


class Answer:
    """The records of one event, and which of them are done for.

    One thread may complete records while another asks for those that failed.
    """

    def __init__(self, records: Sequence[PushedRecord]) -> None:
        self.records = records
        self._done: set[PushedRecord] = set()

    def complete(self, record: PushedRecord) -> None:
        """Its message was handled, or is safe in the queue for rejected messages."""
        self._done.add(record)

    @property
    def failed_ids(self) -> list[str]:
        """The ids to come again, each once and in the event's order."""
        done = self._done
        return list(dict.fromkeys(each.id for each in self.records if each not in done))

"""Names of throw-away queues: told from real ones at a glance, and allowed by every broker."""

from __future__ import annotations

import re

import attrs

_STRANGE = re.compile(r"[^A-Za-z0-9_-]+")
_FIFO = ".fifo"
_MAX_STEM = 48
"""With what follows it a name stays below 80 characters, the most that SQS takes."""


@attrs.define
class ScratchNames:
    """Gives each queue's name another one, always the same, that no real queue has."""

    token: str
    """What no other run has."""
    _names: dict[str, str] = attrs.field(factory=dict, init=False)

    def of(self, queue: str) -> str:
        """The throw-away name for a queue; that of a throw-away queue is its own."""
        if queue in self._names.values():
            return queue
        if queue not in self._names:
            self._names[queue] = self._unlike_others(queue)
        return self._names[queue]

    def _unlike_others(self, queue: str) -> str:
        name = scratch_name(queue, self.token)
        if name not in self._names.values():
            return name
        return scratch_name(queue, f"{self.token}-{len(self._names)}")


def scratch_name(queue: str, token: str) -> str:
    """`orders` becomes `orders-bench-TOKEN`; of an ARN or a URL only the queue's own name stays.

    What ends in .fifo still does: on SQS that makes it an ordered queue.
    """
    ending = _FIFO if queue.endswith(_FIFO) else ""
    own = re.split(r"[:/]", queue.removesuffix(_FIFO))[-1]
    stem = _STRANGE.sub("-", own)[:_MAX_STEM].strip("-") or "queue"
    return f"{stem}-bench-{token}{ending}"

"""Move tasks: messages on their way from a dead-letter queue back to where they came from."""

from __future__ import annotations

from enum import Enum
from uuid import UUID

import attrs

from ..model import QueueAddress

NO_SUCH_QUEUE = "AWS.SimpleQueueService.NonExistentQueue"
NO_SOURCE = "CouldNotDetermineMessageSource"


class MoveStatus(Enum):
    """How far a task is; only RUNNING and CANCELLING ones still do something."""

    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    CANCELLING = "CANCELLING"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"


@attrs.define(eq=False, kw_only=True)
class MoveTask:
    """One `StartMessageMoveTask`, as it stands."""

    number: int
    """Its place among all tasks, and its key on disk."""
    handle: str
    """A UUID."""
    source: QueueAddress
    target: QueueAddress | None
    """None: each message goes to the queue whose redrive policy moved it."""
    rate: int | None
    """Messages a second at most."""
    to_move: int
    started_at_ms: int
    status: MoveStatus = MoveStatus.RUNNING
    moved: int = 0
    failure_reason: str | None = None

    @property
    def is_active(self) -> bool:
        """Whether it still does something."""
        return self.status in (MoveStatus.RUNNING, MoveStatus.CANCELLING)


def handle_of(message_id: str) -> str:
    """A task's handle, from an id that is unique in the file."""
    return str(UUID(message_id))

"""StartMessageMoveTask, ListMessageMoveTasks and CancelMessageMoveTask: redrive of dead letters."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from ..engine import MoveStatus, MoveTask
from ..errors import invalid_parameter_value, resource_not_found
from ..model import QueueId
from .parameters import Changes, find_by_arn, number_within, text

if TYPE_CHECKING:
    from ..engine import Queue, SqsEngine
    from ..protocol import Call

MAX_RATE: Final = 500
MAX_TASKS: Final = 10


@attrs.frozen(eq=False)
class Moves:
    """Operations on move tasks."""

    engine: SqsEngine
    changes: Changes

    async def start_message_move_task(self, call: Call) -> Mapping[str, Any]:
        """Move a dead-letter queue's messages to a queue, or each back to where it came from."""
        source = find_by_arn(self.engine, call.parameters, "SourceArn")
        if not self._is_dead_letter_queue(source.settings.address):
            raise invalid_parameter_value("Source queue must be configured as a Dead Letter Queue.")
        target = self._target(call, source)
        rate = _number(call, "MaxNumberOfMessagesPerSecond", MAX_RATE)
        async with self.changes.lock:  # or two callers could both find no task
            if any(task.is_active for task in self.engine.moves(source)):
                raise invalid_parameter_value(
                    "There is already a task running. Only one active task is allowed for a "
                    "source queue arn at a given time."
                )
            task = await self.engine.start_move(source, target, rate=rate)
        return {"TaskHandle": encode_handle(task.handle, source.settings.address)}

    async def list_message_move_tasks(self, call: Call) -> Mapping[str, Any]:
        """The latest tasks of a source, newest first; one unless more are asked for."""
        source = find_by_arn(self.engine, call.parameters, "SourceArn")
        limit = _number(call, "MaxResults", MAX_TASKS)
        tasks = self.engine.moves(source)[: limit or 1]
        return {"Results": [_render(task, source.settings.address) for task in tasks]}

    async def cancel_message_move_task(self, call: Call) -> Mapping[str, Any]:
        """Stop a running task; what it has moved stays moved."""
        task_id, arn = decode_handle(text(call.parameters, "TaskHandle"))
        address = QueueId.from_arn(arn)
        source = None if address is None else self.engine.find(address)
        if source is None:
            raise resource_not_found()
        for task in self.engine.moves(source):
            if task.handle == task_id and task.status is MoveStatus.RUNNING:
                return {"ApproximateNumberOfMessagesMoved": await self.engine.cancel_move(task)}
        raise resource_not_found("Task does not exist.")

    def _target(self, call: Call, source: Queue) -> Queue | None:
        """Where all messages go; None when each goes back where it came from."""
        if not call.parameters.get("DestinationArn"):
            return None
        target = find_by_arn(self.engine, call.parameters, "DestinationArn")
        if target.settings.address == source.settings.address:
            raise invalid_parameter_value(
                "Source queue arn and destination queue arn cannot be the same."
            )
        if target.settings.address.is_fifo != source.settings.address.is_fifo:
            raise invalid_parameter_value(
                "The source queue and destination queue must be of the same queue type."
            )
        return target

    def _is_dead_letter_queue(self, address: QueueId) -> bool:
        return any(
            queue.settings.redrive is not None and queue.settings.redrive.target == address
            for queue in self.engine.queues.values()
        )


def _number(call: Call, name: str, high: int) -> int | None:
    return number_within(
        call.parameters,
        name,
        1,
        high,
        reason=f"You must enter a number that's between 1 and {high}.",
        is_quoted=False,
    )


def encode_handle(task_id: str, source: QueueId) -> str:
    """A task handle as AWS makes them, so that a tool that looks inside finds what it expects."""
    return base64.b64encode(
        json.dumps({"taskId": task_id, "sourceArn": source.arn}).encode()
    ).decode()


def decode_handle(handle: str) -> tuple[str, str]:
    """The task and source ARN in a handle; SqsError when it is none."""
    try:
        document = json.loads(base64.b64decode(handle, validate=True))
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict):
        task_id, arn = document.get("taskId"), document.get("sourceArn")
        if isinstance(task_id, str) and isinstance(arn, str):
            return task_id, arn
    raise invalid_parameter_value("Value for parameter TaskHandle is invalid.")


def _render(task: MoveTask, source: QueueId) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "Status": task.status.value,
        "SourceArn": source.arn,
        "ApproximateNumberOfMessagesMoved": task.moved,
        "ApproximateNumberOfMessagesToMove": task.to_move,
        "StartedTimestamp": task.started_at_ms,
    }
    if task.status is MoveStatus.RUNNING:
        shown["TaskHandle"] = encode_handle(task.handle, source)
    if task.target is not None:
        shown["DestinationArn"] = task.target.arn
    if task.rate is not None:
        shown["MaxNumberOfMessagesPerSecond"] = task.rate
    if task.failure_reason is not None:
        shown["FailureReason"] = task.failure_reason
    return shown

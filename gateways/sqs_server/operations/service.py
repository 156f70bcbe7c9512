"""The operations of SQS by name: validation, limits and digests in front of the engine."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from pump.clock import Clock

from ..engine import MoveStatus, MoveTask
from ..errors import invalid_parameter_value, resource_not_found, unknown_operation
from ..model import QueueId
from .messages import ReceiptOperations, Receiving, Sending
from .parameters import Changes, find_by_arn, number_within, text
from .permissions import Permissions
from .queues import QueueOperations, Tags

if TYPE_CHECKING:
    from ..engine import Queue, SqsEngine
    from ..protocol import Call


Operation = Callable[["Call"], Awaitable[Mapping[str, Any]]]


class Operations:
    """Every operation of the SQS API.

    Parameters that an operation does not know are ignored, as AWS does. `is_strict` adds the
    pauses AWS asks for: 60 s between deleting a queue and making it again, and between purges.
    """

    def __init__(self, engine: SqsEngine, *, clock: Clock, is_strict: bool = False) -> None:
        changes = Changes(engine)
        queues = QueueOperations(engine, changes, clock, is_strict)
        sending, receiving, receipts = Sending(engine), Receiving(engine), ReceiptOperations(engine)
        permissions, tags = Permissions(changes, clock), Tags(engine, changes)
        moves = Moves(engine, changes)
        self._operations: dict[str, Operation] = {
            "AddPermission": permissions.add_permission,
            "CancelMessageMoveTask": moves.cancel_message_move_task,
            "ChangeMessageVisibility": receipts.change_message_visibility,
            "ChangeMessageVisibilityBatch": receipts.change_message_visibility_batch,
            "CreateQueue": queues.create_queue,
            "DeleteMessage": receipts.delete_message,
            "DeleteMessageBatch": receipts.delete_message_batch,
            "DeleteQueue": queues.delete_queue,
            "GetQueueAttributes": queues.get_queue_attributes,
            "GetQueueUrl": queues.get_queue_url,
            "ListDeadLetterSourceQueues": queues.list_dead_letter_source_queues,
            "ListMessageMoveTasks": moves.list_message_move_tasks,
            "ListQueueTags": tags.list_queue_tags,
            "ListQueues": queues.list_queues,
            "PurgeQueue": queues.purge_queue,
            "ReceiveMessage": receiving.receive_message,
            "RemovePermission": permissions.remove_permission,
            "SendMessage": sending.send_message,
            "SendMessageBatch": sending.send_message_batch,
            "SetQueueAttributes": queues.set_queue_attributes,
            "StartMessageMoveTask": moves.start_message_move_task,
            "TagQueue": tags.tag_queue,
            "UntagQueue": tags.untag_queue,
        }

    async def call(self, call: Call) -> Mapping[str, Any]:
        """The operation's result in the JSON protocol's names; SqsError when it is refused."""
        operation = self._operations.get(call.operation)
        if operation is None:
            raise unknown_operation(call.operation)
        return await operation(call)


# StartMessageMoveTask, ListMessageMoveTasks and CancelMessageMoveTask: redrive of dead letters.

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

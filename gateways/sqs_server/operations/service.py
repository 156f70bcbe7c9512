"""The operations of SQS by name: validation, limits and digests in front of the engine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from pump.clock import Clock

from ..errors import unknown_operation
from .moves import Moves
from .parameters import Changes
from .permissions import Permissions
from .queues import QueueOperations, Tags
from .receiving import ReceiptOperations, Receiving
from .sending import Sending

if TYPE_CHECKING:
    from ..engine import SqsEngine
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

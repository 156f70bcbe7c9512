"""The operations of the API: the one table of both protocols."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from . import requests, results
from .call import members_of


@attrs.frozen
class Operation:
    """What one operation takes, and what it gives if it gives anything."""

    request: Any
    result: Any = None

    @property
    def takes_queue_url(self) -> bool:
        """Whether it works on a queue, so that the queue's own address can stand for it."""
        return "QueueUrl" in members_of(self.request)


OPERATIONS: Final[Mapping[str, Operation]] = {
    "AddPermission": Operation(requests.AddPermissionRequest),
    "CancelMessageMoveTask": Operation(
        requests.CancelMessageMoveTaskRequest, results.CancelMessageMoveTaskResult
    ),
    "ChangeMessageVisibility": Operation(requests.ChangeMessageVisibilityRequest),
    "ChangeMessageVisibilityBatch": Operation(
        requests.ChangeMessageVisibilityBatchRequest, results.ChangeMessageVisibilityBatchResult
    ),
    "CreateQueue": Operation(requests.CreateQueueRequest, results.QueueUrlResult),
    "DeleteMessage": Operation(requests.DeleteMessageRequest),
    "DeleteMessageBatch": Operation(
        requests.DeleteMessageBatchRequest, results.DeleteMessageBatchResult
    ),
    "DeleteQueue": Operation(requests.QueueRequest),
    "GetQueueAttributes": Operation(
        requests.GetQueueAttributesRequest, results.GetQueueAttributesResult
    ),
    "GetQueueUrl": Operation(requests.GetQueueUrlRequest, results.QueueUrlResult),
    "ListDeadLetterSourceQueues": Operation(
        requests.ListDeadLetterSourceQueuesRequest, results.ListDeadLetterSourceQueuesResult
    ),
    "ListMessageMoveTasks": Operation(
        requests.ListMessageMoveTasksRequest, results.ListMessageMoveTasksResult
    ),
    "ListQueueTags": Operation(requests.QueueRequest, results.ListQueueTagsResult),
    "ListQueues": Operation(requests.ListQueuesRequest, results.ListQueuesResult),
    "PurgeQueue": Operation(requests.QueueRequest),
    "ReceiveMessage": Operation(requests.ReceiveMessageRequest, results.ReceiveMessageResult),
    "RemovePermission": Operation(requests.RemovePermissionRequest),
    "SendMessage": Operation(requests.SendMessageRequest, results.SendMessageResult),
    "SendMessageBatch": Operation(requests.SendMessageBatchRequest, results.SendMessageBatchResult),
    "SetQueueAttributes": Operation(requests.SetQueueAttributesRequest),
    "StartMessageMoveTask": Operation(
        requests.StartMessageMoveTaskRequest, results.StartMessageMoveTaskResult
    ),
    "TagQueue": Operation(requests.TagQueueRequest),
    "UntagQueue": Operation(requests.UntagQueueRequest),
}

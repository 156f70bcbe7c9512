"""The operations of the API: the one table of both protocols."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypedDict

import attrs

from .call import Wire, members_of

# What each operation takes.
#
# Nothing is required here: which members an operation cannot do without, and what AWS says when
# they are missing, is the operation's business.


class QueueRequest(TypedDict, total=False):
    """An operation on a queue that needs nothing else."""

    QueueUrl: str


class CreateQueueRequest(TypedDict, total=False):
    """CreateQueue; the lower case of `tags` is AWS's."""

    QueueName: str
    Attributes: QueueAttributes
    tags: Tags


class GetQueueUrlRequest(TypedDict, total=False):
    """GetQueueUrl."""

    QueueName: str
    QueueOwnerAWSAccountId: str


class ListQueuesRequest(TypedDict, total=False):
    """ListQueues."""

    QueueNamePrefix: str
    NextToken: str
    MaxResults: int


class GetQueueAttributesRequest(TypedDict, total=False):
    """GetQueueAttributes."""

    QueueUrl: str
    AttributeNames: AttributeNames


class SetQueueAttributesRequest(TypedDict, total=False):
    """SetQueueAttributes."""

    QueueUrl: str
    Attributes: QueueAttributes


class SendMessageRequest(TypedDict, total=False):
    """SendMessage."""

    QueueUrl: str
    MessageBody: str
    DelaySeconds: int
    MessageAttributes: MessageAttributes
    MessageSystemAttributes: SystemAttributes
    MessageDeduplicationId: str
    MessageGroupId: str


class SendMessageBatchRequestEntry(TypedDict, total=False):
    """One message of SendMessageBatch."""

    Id: str
    MessageBody: str
    DelaySeconds: int
    MessageAttributes: MessageAttributes
    MessageSystemAttributes: SystemAttributes
    MessageDeduplicationId: str
    MessageGroupId: str


class SendMessageBatchRequest(TypedDict, total=False):
    """SendMessageBatch."""

    QueueUrl: str
    Entries: Annotated[list[SendMessageBatchRequestEntry], Wire("SendMessageBatchRequestEntry")]


class ReceiveMessageRequest(TypedDict, total=False):
    """ReceiveMessage; `AttributeNames` is the older name of `MessageSystemAttributeNames`."""

    QueueUrl: str
    AttributeNames: AttributeNames
    MessageSystemAttributeNames: Annotated[list[str], Wire("MessageSystemAttributeName")]
    MessageAttributeNames: Annotated[list[str], Wire("MessageAttributeName")]
    MaxNumberOfMessages: int
    VisibilityTimeout: int
    WaitTimeSeconds: int
    ReceiveRequestAttemptId: str


class DeleteMessageRequest(TypedDict, total=False):
    """DeleteMessage."""

    QueueUrl: str
    ReceiptHandle: str


class DeleteMessageBatchRequestEntry(TypedDict, total=False):
    """One receipt of DeleteMessageBatch."""

    Id: str
    ReceiptHandle: str


class DeleteMessageBatchRequest(TypedDict, total=False):
    """DeleteMessageBatch."""

    QueueUrl: str
    Entries: Annotated[list[DeleteMessageBatchRequestEntry], Wire("DeleteMessageBatchRequestEntry")]


class ChangeMessageVisibilityRequest(TypedDict, total=False):
    """ChangeMessageVisibility."""

    QueueUrl: str
    ReceiptHandle: str
    VisibilityTimeout: int


class ChangeMessageVisibilityBatchRequestEntry(TypedDict, total=False):
    """One receipt of ChangeMessageVisibilityBatch."""

    Id: str
    ReceiptHandle: str
    VisibilityTimeout: int


class ChangeMessageVisibilityBatchRequest(TypedDict, total=False):
    """ChangeMessageVisibilityBatch."""

    QueueUrl: str
    Entries: Annotated[
        list[ChangeMessageVisibilityBatchRequestEntry],
        Wire("ChangeMessageVisibilityBatchRequestEntry"),
    ]


class TagQueueRequest(TypedDict, total=False):
    """TagQueue."""

    QueueUrl: str
    Tags: Tags


class UntagQueueRequest(TypedDict, total=False):
    """UntagQueue."""

    QueueUrl: str
    TagKeys: Annotated[list[str], Wire("TagKey")]


class AddPermissionRequest(TypedDict, total=False):
    """AddPermission."""

    QueueUrl: str
    Label: str
    AWSAccountIds: Annotated[list[str], Wire("AWSAccountId")]
    Actions: Annotated[list[str], Wire("ActionName")]


class RemovePermissionRequest(TypedDict, total=False):
    """RemovePermission."""

    QueueUrl: str
    Label: str


class ListDeadLetterSourceQueuesRequest(TypedDict, total=False):
    """ListDeadLetterSourceQueues."""

    QueueUrl: str
    NextToken: str
    MaxResults: int


class StartMessageMoveTaskRequest(TypedDict, total=False):
    """StartMessageMoveTask."""

    SourceArn: str
    DestinationArn: str
    MaxNumberOfMessagesPerSecond: int


class ListMessageMoveTasksRequest(TypedDict, total=False):
    """ListMessageMoveTasks."""

    SourceArn: str
    MaxResults: int


class CancelMessageMoveTaskRequest(TypedDict, total=False):
    """CancelMessageMoveTask."""

    TaskHandle: str


# What each operation gives.

# Shapes that several operations share, in the API's own words.


class AttributeValue(TypedDict, total=False):
    """A message attribute, or a system attribute of a message that is sent."""

    DataType: str
    StringValue: str
    BinaryValue: bytes
    StringListValues: Annotated[list[str], Wire("StringListValue")]
    BinaryListValues: Annotated[list[bytes], Wire("BinaryListValue")]


QueueAttributes = Annotated[dict[str, str], Wire("Attribute")]
Tags = Annotated[dict[str, str], Wire("Tag", key="Key")]
MessageAttributes = Annotated[dict[str, AttributeValue], Wire("MessageAttribute")]
SystemAttributes = Annotated[dict[str, AttributeValue], Wire("MessageSystemAttribute")]
AttributeNames = Annotated[list[str], Wire("AttributeName")]
QueueUrls = Annotated[list[str], Wire("QueueUrl")]


class QueueUrlResult(TypedDict, total=False):
    """CreateQueue, GetQueueUrl."""

    QueueUrl: str


class ListQueuesResult(TypedDict, total=False):
    """ListQueues."""

    QueueUrls: QueueUrls
    NextToken: str


class GetQueueAttributesResult(TypedDict, total=False):
    """GetQueueAttributes."""

    Attributes: QueueAttributes


class SendMessageResult(TypedDict, total=False):
    """SendMessage."""

    MessageId: str
    MD5OfMessageBody: str
    MD5OfMessageAttributes: str
    MD5OfMessageSystemAttributes: str
    SequenceNumber: str


class SendMessageBatchResultEntry(TypedDict, total=False):
    """One accepted message."""

    Id: str
    MessageId: str
    MD5OfMessageBody: str
    MD5OfMessageAttributes: str
    MD5OfMessageSystemAttributes: str
    SequenceNumber: str


class BatchResultErrorEntry(TypedDict, total=False):
    """One refused entry of any batch."""

    Id: str
    Code: str
    Message: str
    SenderFault: bool


Failed = Annotated[list[BatchResultErrorEntry], Wire("BatchResultErrorEntry")]


class SendMessageBatchResult(TypedDict, total=False):
    """SendMessageBatch."""

    Successful: Annotated[list[SendMessageBatchResultEntry], Wire("SendMessageBatchResultEntry")]
    Failed: Failed


class BatchResultEntry(TypedDict, total=False):
    """One receipt that was honoured."""

    Id: str


class DeleteMessageBatchResult(TypedDict, total=False):
    """DeleteMessageBatch."""

    Successful: Annotated[list[BatchResultEntry], Wire("DeleteMessageBatchResultEntry")]
    Failed: Failed


class ChangeMessageVisibilityBatchResult(TypedDict, total=False):
    """ChangeMessageVisibilityBatch."""

    Successful: Annotated[list[BatchResultEntry], Wire("ChangeMessageVisibilityBatchResultEntry")]
    Failed: Failed


class ReceivedMessage(TypedDict, total=False):
    """One received message."""

    MessageId: str
    ReceiptHandle: str
    MD5OfBody: str
    Body: str
    Attributes: QueueAttributes
    MD5OfMessageAttributes: str
    MessageAttributes: MessageAttributes


class ReceiveMessageResult(TypedDict, total=False):
    """ReceiveMessage."""

    Messages: Annotated[list[ReceivedMessage], Wire("Message")]


class ListQueueTagsResult(TypedDict, total=False):
    """ListQueueTags."""

    Tags: Tags


class ListDeadLetterSourceQueuesResult(TypedDict, total=False):
    """ListDeadLetterSourceQueues; the lower case of `queueUrls` is AWS's."""

    queueUrls: QueueUrls
    NextToken: str


class StartMessageMoveTaskResult(TypedDict, total=False):
    """StartMessageMoveTask."""

    TaskHandle: str


class ListMessageMoveTasksResultEntry(TypedDict, total=False):
    """One move task."""

    TaskHandle: str
    Status: str
    SourceArn: str
    DestinationArn: str
    MaxNumberOfMessagesPerSecond: int
    ApproximateNumberOfMessagesMoved: int
    ApproximateNumberOfMessagesToMove: int
    FailureReason: str
    StartedTimestamp: int


class ListMessageMoveTasksResult(TypedDict, total=False):
    """ListMessageMoveTasks."""

    Results: Annotated[
        list[ListMessageMoveTasksResultEntry], Wire("ListMessageMoveTasksResultEntry")
    ]


class CancelMessageMoveTaskResult(TypedDict, total=False):
    """CancelMessageMoveTask."""

    ApproximateNumberOfMessagesMoved: int


@attrs.frozen
class OperationShape:
    """What one operation takes, and what it gives if it gives anything."""

    request: Any
    result: Any = None

    @property
    def takes_queue_url(self) -> bool:
        """Whether it works on a queue, so that the queue's own address can stand for it."""
        return "QueueUrl" in members_of(self.request)


OPERATIONS: Final[Mapping[str, OperationShape]] = {
    "AddPermission": OperationShape(AddPermissionRequest),
    "CancelMessageMoveTask": OperationShape(
        CancelMessageMoveTaskRequest, CancelMessageMoveTaskResult
    ),
    "ChangeMessageVisibility": OperationShape(ChangeMessageVisibilityRequest),
    "ChangeMessageVisibilityBatch": OperationShape(
        ChangeMessageVisibilityBatchRequest, ChangeMessageVisibilityBatchResult
    ),
    "CreateQueue": OperationShape(CreateQueueRequest, QueueUrlResult),
    "DeleteMessage": OperationShape(DeleteMessageRequest),
    "DeleteMessageBatch": OperationShape(DeleteMessageBatchRequest, DeleteMessageBatchResult),
    "DeleteQueue": OperationShape(QueueRequest),
    "GetQueueAttributes": OperationShape(GetQueueAttributesRequest, GetQueueAttributesResult),
    "GetQueueUrl": OperationShape(GetQueueUrlRequest, QueueUrlResult),
    "ListDeadLetterSourceQueues": OperationShape(
        ListDeadLetterSourceQueuesRequest, ListDeadLetterSourceQueuesResult
    ),
    "ListMessageMoveTasks": OperationShape(ListMessageMoveTasksRequest, ListMessageMoveTasksResult),
    "ListQueueTags": OperationShape(QueueRequest, ListQueueTagsResult),
    "ListQueues": OperationShape(ListQueuesRequest, ListQueuesResult),
    "PurgeQueue": OperationShape(QueueRequest),
    "ReceiveMessage": OperationShape(ReceiveMessageRequest, ReceiveMessageResult),
    "RemovePermission": OperationShape(RemovePermissionRequest),
    "SendMessage": OperationShape(SendMessageRequest, SendMessageResult),
    "SendMessageBatch": OperationShape(SendMessageBatchRequest, SendMessageBatchResult),
    "SetQueueAttributes": OperationShape(SetQueueAttributesRequest),
    "StartMessageMoveTask": OperationShape(StartMessageMoveTaskRequest, StartMessageMoveTaskResult),
    "TagQueue": OperationShape(TagQueueRequest),
    "UntagQueue": OperationShape(UntagQueueRequest),
}

"""What each operation gives."""

from __future__ import annotations

from typing import Annotated, TypedDict

from .call import Wire

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


class Message(TypedDict, total=False):
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

    Messages: Annotated[list[Message], Wire("Message")]


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

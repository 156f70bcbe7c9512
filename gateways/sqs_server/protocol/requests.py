"""What each operation takes.

Nothing is required here: which members an operation cannot do without, and what AWS says when
they are missing, is the operation's business.
"""

from __future__ import annotations

from typing import Annotated, TypedDict

from .call import Wire
from .results import AttributeNames, MessageAttributes, QueueAttributes, SystemAttributes, Tags


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

"""What SQS says when it refuses: one exception, and a constructor for each code it knows.

`code` is what the JSON protocol calls the error and `query_code` what the older protocol does;
an SDK shows its user the latter in both. The texts are AWS's, because test suites compare them.
"""

from __future__ import annotations

from typing import Final

_SERVICE: Final = "com.amazonaws.sqs#"
_FRAMEWORK: Final = "com.amazon.coral.service#"
_QUERY: Final = "AWS.SimpleQueueService."

# Errors that AWS's web framework raises before SQS itself sees the request; the model of the
# service does not know them, and the JSON protocol marks them by another namespace.
_FRAMEWORK_CODES: Final = frozenset(
    {
        "AccessDeniedException",
        "InternalFailure",
        "InvalidParameterValueException",
        "InvalidSignatureException",
        "IncompleteSignatureException",
        "MissingAuthenticationTokenException",
        "MissingRequiredParameterException",
        "RequestExpiredException",
        "SerializationException",
        "ServiceUnavailableException",
        "UnknownOperationException",
        "UnrecognizedClientException",
    }
)


class SqsError(Exception):
    """A refusal as the client will see it."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        query_code: str | None = None,
        status: int = 400,
        query_message: str | None = None,
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.query_code = code if query_code is None else query_code
        self.query_message = message if query_message is None else query_message
        self.status = status

    @property
    def is_senders_fault(self) -> bool:
        """Whether the same request would be refused again."""
        return self.status < 500

    @property
    def type(self) -> str:
        """The JSON protocol's `__type`."""
        return (_FRAMEWORK if self.code in _FRAMEWORK_CODES else _SERVICE) + self.code

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


# Queues


def queue_does_not_exist() -> SqsError:
    """No queue of that name in that account and region; the two protocols word it differently."""
    return SqsError(
        "QueueDoesNotExist",
        "The specified queue does not exist.",
        query_code=_QUERY + "NonExistentQueue",
        query_message="The specified queue does not exist for this wsdl version.",
    )


def queue_name_exists(attribute: str) -> SqsError:
    """CreateQueue named an existing queue with another value for `attribute`."""
    return SqsError(
        "QueueNameExists",
        "A queue already exists with the same name and a different value for attribute "
        f"{attribute}",
        query_code="QueueAlreadyExists",
    )


def queue_deleted_recently() -> SqsError:
    """CreateQueue within 60 seconds of DeleteQueue."""
    return SqsError(
        "QueueDeletedRecently",
        "You must wait 60 seconds after deleting a queue before you can create another "
        "with the same name.",
        query_code=_QUERY + "QueueDeletedRecently",
    )


def purge_queue_in_progress(queue_name: str) -> SqsError:
    """PurgeQueue within 60 seconds of the last one."""
    return SqsError(
        "PurgeQueueInProgress",
        f"Only one PurgeQueue operation on {queue_name} is allowed every 60 seconds.",
        query_code=_QUERY + "PurgeQueueInProgress",
        status=403,
    )


def resource_not_found(
    message: str = "The resource that you specified for the SourceArn parameter doesn't exist.",
) -> SqsError:
    """A move task's queue, or the task itself, does not exist."""
    return SqsError("ResourceNotFoundException", message, status=404)


# Attributes and parameters


def invalid_attribute_name(name: str) -> SqsError:
    """No queue attribute of that name, or one that cannot be set."""
    return SqsError("InvalidAttributeName", f"Unknown Attribute {name}.")


def conflicting_encryption() -> SqsError:
    """Both kinds of encryption at rest were asked for; AWS uses the code for unknown names."""
    return SqsError(
        "InvalidAttributeName",
        "You can use one type of server-side encryption (SSE) at one time. "
        "You can either enable KMS SSE or SQS SSE.",
    )


def invalid_attribute_value(parameter: str, reason: str | None = None) -> SqsError:
    """A queue attribute has a value it cannot have; a `reason` ends with its own full stop."""
    tail = "." if reason is None else f". Reason: {reason}"
    return SqsError("InvalidAttributeValue", f"Invalid value for the parameter {parameter}{tail}")


def invalid_parameter_value(message: str) -> SqsError:
    """A parameter cannot have that value, in AWS's words for the case."""
    return SqsError("InvalidParameterValueException", message, query_code="InvalidParameterValue")


def invalid_value(parameter: str, value: object, reason: str) -> SqsError:
    """The most common wording of `invalid_parameter_value`; `reason` has its own full stop."""
    return invalid_parameter_value(
        f"Value {value} for parameter {parameter} is invalid. Reason: {reason}"
    )


def missing_parameter(parameter: str) -> SqsError:
    """A parameter that the operation needs is not there."""
    return SqsError(
        "MissingRequiredParameterException",
        f"The request must contain the parameter {parameter}.",
        query_code="MissingParameter",
    )


def unsupported_operation(message: str = "This operation is not supported.") -> SqsError:
    """The queue's type does not allow this."""
    return SqsError("UnsupportedOperation", message, query_code=_QUERY + "UnsupportedOperation")


def invalid_address(address: str) -> SqsError:
    """A queue URL that cannot be one."""
    return SqsError(
        "InvalidAddress", f"The address {address} is not valid for this endpoint.", status=404
    )


# Messages and receipts


def invalid_message_contents(
    message: str = "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | "
    "#x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF",
) -> SqsError:
    """The body has characters that XML 1.0 cannot carry."""
    return SqsError("InvalidMessageContents", message)


def message_too_long(max_bytes: int) -> SqsError:
    """Body and attributes together are over the queue's limit."""
    return invalid_parameter_value(
        "One or more parameters are invalid. "
        f"Reason: Message must be shorter than {max_bytes} bytes."
    )


def receipt_handle_is_invalid(receipt: str) -> SqsError:
    """It never was a receipt handle."""
    return SqsError(
        "ReceiptHandleIsInvalid",
        f'The input receipt handle "{receipt}" is not a valid receipt handle.',
        status=404,
    )


def receipt_handle_of_another_queue(receipt: str) -> SqsError:
    """It was given out, and not by the queue it is used on."""
    return SqsError(
        "ReceiptHandleIsInvalid",
        f'The receipt handle "{receipt}" is not valid for this queue.',
        status=404,
    )


def receipt_handle_expired(receipt: str) -> SqsError:
    """A FIFO queue's message was received again, or its timeout is over."""
    return invalid_value("ReceiptHandle", receipt, "The receipt handle has expired.")


def message_not_available(receipt: str) -> SqsError:
    """ChangeMessageVisibility of a message that is gone."""
    return invalid_value(
        "ReceiptHandle",
        receipt,
        "Message does not exist or is not available for visibility timeout change.",
    )


def message_not_inflight(
    message: str = "The message referred to is not in flight.",
) -> SqsError:
    """ChangeMessageVisibility of a message that is not in flight."""
    return SqsError("MessageNotInflight", message, query_code=_QUERY + "MessageNotInflight")


def invalid_id_format(message: str = "The specified receipt handle is not valid.") -> SqsError:
    """Deprecated by AWS in favour of `receipt_handle_is_invalid`; kept for completeness."""
    return SqsError("InvalidIdFormat", message)


def over_limit(message: str) -> SqsError:
    """Too many messages in flight, permissions or tags."""
    return SqsError("OverLimit", message, status=403)


# Batches


def empty_batch_request(entry: str = "SendMessageBatchRequestEntry") -> SqsError:
    """A batch without entries; `entry` is the name of the entry's shape."""
    return SqsError(
        "EmptyBatchRequest",
        f"There should be at least one {entry} in the request.",
        query_code=_QUERY + "EmptyBatchRequest",
    )


def too_many_entries_in_batch_request(sent_count: int, max_count: int = 10) -> SqsError:
    """A batch with more than ten entries."""
    return SqsError(
        "TooManyEntriesInBatchRequest",
        f"Maximum number of entries per request are {max_count}. You have sent {sent_count}.",
        query_code=_QUERY + "TooManyEntriesInBatchRequest",
    )


def batch_entry_ids_not_distinct(entry_id: str) -> SqsError:
    """Two entries of a batch have the same id."""
    return SqsError(
        "BatchEntryIdsNotDistinct",
        f"Id {entry_id} repeated.",
        query_code=_QUERY + "BatchEntryIdsNotDistinct",
    )


def invalid_batch_entry_id() -> SqsError:
    """An entry's id has other characters than AWS allows."""
    return SqsError(
        "InvalidBatchEntryId",
        "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
        "It can be at most 80 letters long.",
        query_code=_QUERY + "InvalidBatchEntryId",
    )


def batch_request_too_long(sent_bytes: int, max_bytes: int) -> SqsError:
    """All entries together are over the limit."""
    return SqsError(
        "BatchRequestTooLong",
        f"Batch requests cannot be longer than {max_bytes} bytes. "
        f"You have sent {sent_bytes} bytes.",
        query_code=_QUERY + "BatchRequestTooLong",
    )


# Encryption: a local server has no KMS, but a client may be tested against its refusals


def kms_error(name: str, message: str) -> SqsError:
    """A refusal of KMS's, by the JSON protocol's name for it, such as `KmsNotFound`."""
    status = 403 if name == "KmsOptInRequired" else 400
    return SqsError(name, message, query_code=_KMS_QUERY_CODES[name], status=status)


_KMS_QUERY_CODES: Final = {
    "KmsAccessDenied": "KMS.AccessDeniedException",
    "KmsDisabled": "KMS.DisabledException",
    "KmsInvalidKeyUsage": "KMS.InvalidKeyUsageException",
    "KmsInvalidState": "KMS.InvalidStateException",
    "KmsNotFound": "KMS.NotFoundException",
    "KmsOptInRequired": "KMS.OptInRequired",
    "KmsThrottled": "KMS.ThrottlingException",
}


# Before an operation is reached


def unknown_operation(operation: str = "") -> SqsError:
    """No operation of that name, or not at this address."""
    return SqsError(
        "UnknownOperationException",
        f"The operation {operation} is not valid for this endpoint." if operation else "",
        query_code="InvalidAction",
        query_message=f"The action {operation} is not valid for this endpoint.",
    )


def missing_action() -> SqsError:
    """Neither a target header nor an Action: AWS answers 404 with an empty element."""
    return SqsError("UnknownOperationException", "", query_code="MissingAction", status=404)


def serialization_exception(message: str = "") -> SqsError:
    """The body is not JSON, or a member has another type than the operation takes."""
    return SqsError("SerializationException", message, query_code="MalformedInput")


# Who is asking


def access_denied(
    message: str = "Access to the resource is denied.",
) -> SqsError:
    """Known, but not allowed."""
    return SqsError("AccessDeniedException", message, query_code="AccessDenied", status=403)


def invalid_security(
    message: str = "The request has to come over HTTPS and be signed with SigV4.",
) -> SqsError:
    """The way the request came is not one the queue accepts."""
    return SqsError("InvalidSecurity", message, status=403)


def request_throttled(message: str = "Request is throttled.") -> SqsError:
    """Too many requests at once."""
    return SqsError("RequestThrottled", message, status=403)


# Ours


def internal_failure() -> SqsError:
    """A fault of the server; what it was is in its log, never in the answer."""
    return SqsError(
        "InternalFailure",
        "The request processing has failed because of an unknown error, exception or failure.",
        status=500,
    )


def service_unavailable(
    message: str = "The request has failed due to a temporary failure of the server.",
) -> SqsError:
    """Come back later: the disk refuses writes, or the server is closing."""
    return SqsError(
        "ServiceUnavailableException", message, query_code="ServiceUnavailable", status=503
    )

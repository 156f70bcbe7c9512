"""What AWS's error codes mean to us: one table, for whole calls and for entries of batches."""

from __future__ import annotations

from enum import Enum, auto


class Meaning(Enum):
    """What a code says about what to do next."""

    QUEUE_MISSING = auto()
    QUEUE_DIFFERS = auto()
    OBJECT_MISSING = auto()
    DENIED = auto()
    EXPIRED = auto()
    THROTTLED = auto()
    ONE_A_MINUTE = auto()
    RECEIPT = auto()
    CONFIGURATION = auto()
    FAILED = auto()
    REFUSED = auto()


def meaning_of(code: str, status: int) -> Meaning:
    """Look a code up, however the protocol spelled it; unknown ones go by the HTTP status."""
    name = plain(code)
    found = _EXACT.get(name)
    if found is not None:
        return found
    for beginning, meaning in _BEGINNINGS:
        if name.startswith(beginning):
            return meaning
    return _by_status(status)


def plain(code: str) -> str:
    """A code without what the protocols put around it.

    `com.amazonaws.sqs#QueueDoesNotExist`, `AWS.SimpleQueueService.NonExistentQueue;Sender` and
    `ThrottlingException:http://…` are the forms met.
    """
    name = code.split("#")[-1].split(";")[0].split(":")[0].strip()
    name = name.removeprefix("AWS.SimpleQueueService.").removeprefix("AWS.")
    return name.removesuffix("Exception")


def _by_status(status: int) -> Meaning:
    if status == 429:
        return Meaning.THROTTLED
    if status in (401, 403):
        return Meaning.DENIED
    if status >= 500 or status in (0, 408):
        return Meaning.FAILED
    return Meaning.REFUSED


_CODES: dict[Meaning, str] = {
    # SNS calls a missing topic just NotFound; the caller's target says what it was.
    Meaning.QUEUE_MISSING: "QueueDoesNotExist NonExistentQueue NotFound TopicNotFound",
    Meaning.QUEUE_DIFFERS: "QueueNameExists QueueAlreadyExists",
    Meaning.OBJECT_MISSING: "NoSuchKey NoSuchVersion",
    Meaning.DENIED: (
        "AuthFailure AuthorizationError InvalidSecurity NotAuthorized UnauthorizedOperation "
        "UnauthorizedAccess AllAccessDisabled KmsAccessDenied KMSAccessDenied Forbidden"
    ),
    Meaning.EXPIRED: (
        "RequestExpired UnrecognizedClient InvalidClientTokenId InvalidAccessKeyId InvalidToken "
        "SignatureDoesNotMatch InvalidSignature IncompleteSignature TokenRefreshRequired "
        "MissingAuthenticationToken RequestTimeTooSkewed"
    ),
    Meaning.THROTTLED: (
        "RequestThrottled Throttled TooManyRequests RequestLimitExceeded "
        "BandwidthLimitExceeded LimitExceeded OverLimit KmsThrottled KMSThrottling "
        "KMS.Throttling SlowDown PriorRequestNotComplete ReduceYourRequestRate"
    ),
    Meaning.ONE_A_MINUTE: "PurgeQueueInProgress QueueDeletedRecently",
    Meaning.RECEIPT: "ReceiptHandleIsInvalid MessageNotInflight",
    Meaning.CONFIGURATION: (
        "UnsupportedOperation InvalidAttributeName InvalidAttributeValue InvalidParameterValue "
        "InvalidParameterCombination InvalidParameter MissingParameter MissingRequiredParameter "
        "ValidationError Validation InvalidAddress InvalidAction UnknownOperation OptInRequired "
        "InvalidHostRegion AuthorizationHeaderMalformed PermanentRedirect NoSuchBucket "
        "IllegalLocationConstraint InvalidBucketName NotImplemented KmsDisabled "
        "KmsInvalidState KmsNotFound KmsOptInRequired KmsInvalidKeyUsage KMSDisabled "
        "KMSInvalidState KMSNotFound KMSOptInRequired KMS.NotFound KMS.Disabled KMS.InvalidState"
    ),
    Meaning.FAILED: (
        "InternalError InternalFailure InternalServerError ServiceUnavailable ServiceFailure "
        "RequestTimeout BadGateway GatewayTimeout"
    ),
    Meaning.REFUSED: (
        "PreconditionFailed ConditionalRequestConflict InvalidMessageContents BatchRequestTooLong "
        "EmptyBatchRequest TooManyEntriesInBatchRequest BatchEntryIdsNotDistinct "
        "InvalidBatchEntryId"
    ),
}
_EXACT = {name: meaning for meaning, names in _CODES.items() for name in names.split()}
_BEGINNINGS = (
    ("AccessDenied", Meaning.DENIED),
    ("KMS.AccessDenied", Meaning.DENIED),
    ("KmsAccessDenied", Meaning.DENIED),
    ("ExpiredToken", Meaning.EXPIRED),
    ("Throttling", Meaning.THROTTLED),
)


# The permission that an operation needs, where it is not called like the operation.
_PERMISSIONS = {
    ("sqs", "send_message_batch"): "sqs:SendMessage",
    ("sqs", "delete_message_batch"): "sqs:DeleteMessage",
    ("sqs", "change_message_visibility_batch"): "sqs:ChangeMessageVisibility",
    ("sns", "publish_batch"): "sns:Publish",
    ("s3", "head_object"): "s3:GetObject",
    ("s3", "head_bucket"): "s3:ListBucket",
    ("s3", "list_objects_v2"): "s3:ListBucket",
    ("s3", "delete_objects"): "s3:DeleteObject",
    ("s3", "get_bucket_lifecycle_configuration"): "s3:GetLifecycleConfiguration",
}


def permission_for(service: str, operation: str) -> str:
    """The IAM action an operation needs, such as `sqs:ReceiveMessage`."""
    named = _PERMISSIONS.get((service, operation))
    return named or f"{service}:{''.join(map(str.capitalize, operation.split('_')))}"

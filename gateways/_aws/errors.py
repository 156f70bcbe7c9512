"""The SDKs' errors in our words. Pure: nothing of an SDK is imported to recognise them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

import attrs

from pump.errors import (
    AccessDenied,
    ConfigurationError,
    ConnectionFailed,
    CredentialsExpired,
    GatewayError,
    InvalidReceipt,
    PumpError,
    QueueMismatch,
    QueueNotFound,
    Throttled,
)

ONE_MINUTE_S = 60.0
"""How long SQS refuses a second purge, and a new queue of a deleted one's name."""
MAX_DETAIL = 300
"""How many characters of AWS's own words an error repeats."""


@attrs.frozen
class ObjectNotFound(GatewayError):
    """There is no such object in the bucket."""

    bucket_key: str

    def __str__(self) -> str:
        return f"object {self.bucket_key!r} does not exist; it was deleted, or never written"


@attrs.frozen
class RequestRefused(GatewayError):
    """AWS refused this request, and would refuse it again; `code` is AWS's own."""

    target: str
    code: str
    detail: str

    def __str__(self) -> str:
        return f"{self.target} refused the request ({self.code}): {self.detail}"


@attrs.frozen
class SettingRefused(ConfigurationError, GatewayError):
    """AWS takes a setting of ours for wrong: to be fixed, and yet no end of a running pump.

    Names the target, AWS's code, and the remedy or AWS's own words.
    """


@attrs.frozen(kw_only=True)
class _Reply:
    """An error as AWS sent it, and what it was sent about."""

    code: str
    status: int
    message: str
    retry_after_s: float | None
    service: str
    operation: str
    target: str
    inner: str | None = None
    """An operation of STS that the call needed first, to assume a role."""


def fault_of(error: Exception, *, service: str, operation: str, target: str) -> PumpError:
    """Say what an error of an SDK means. Ours come back as they are."""
    if isinstance(error, PumpError):
        return error
    response = getattr(error, "response", None)
    if isinstance(response, Mapping) and "Error" in response:
        reply = _reply(response, service, operation, target)
        return _fault_of_reply(attrs.evolve(reply, inner=_inner_operation(error)))
    return _fault_of_sdk(error, target or service)


def metadata_of(fault: BaseException) -> Mapping[str, Any]:
    """What the SDK knows of the reply that made this error: `HTTPHeaders`, `RetryAttempts` and
    the like; empty when there was no reply.
    """
    response = getattr(fault.__cause__, "response", None)
    metadata = response.get("ResponseMetadata") if isinstance(response, Mapping) else None
    return metadata if isinstance(metadata, Mapping) else {}


def entry_fault(entry: Mapping[str, Any], *, operation: str, target: str) -> GatewayError:
    """Say what one of the `Failed` of an SQS batch means; always an error of a gateway."""
    is_ours = bool(entry.get("SenderFault", False))
    reply = _Reply(
        code=str(entry.get("Code", "")),
        status=400 if is_ours else 500,
        message=str(entry.get("Message", "")),
        retry_after_s=None,
        service="sqs",
        operation=operation,
        target=target,
    )
    if _meaning(reply) is Meaning.CONFIGURATION:
        # It is about one message: no reason to call the whole set-up wrong.
        return RequestRefused(target, plain(reply.code), _shortened(reply.message))
    return _fault_of_reply(reply)


def _reply(response: Mapping[str, Any], service: str, operation: str, target: str) -> _Reply:
    error = response["Error"]
    metadata = response.get("ResponseMetadata") or {}
    return _Reply(
        code=str(error.get("Code") or error.get("QueryErrorCode") or ""),
        status=int(metadata.get("HTTPStatusCode") or 0),
        message=str(error.get("Message") or ""),
        retry_after_s=_retry_after_s(metadata.get("HTTPHeaders") or {}),
        service=service,
        operation=operation,
        target=target or service,
    )


def _inner_operation(error: Exception) -> str | None:
    performed = str(getattr(error, "operation_name", ""))
    return performed if performed.startswith("AssumeRole") else None


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    try:
        wait_s = float(headers.get("retry-after", ""))
    except ValueError:  # absent, or a date: the backoff is as good
        return None
    return wait_s if 0 <= wait_s < float("inf") else None


def _fault_of_reply(reply: _Reply) -> GatewayError:
    match _meaning(reply):
        case Meaning.QUEUE_MISSING:
            return QueueNotFound(reply.target)
        case Meaning.QUEUE_DIFFERS:
            return QueueMismatch(reply.target, _shortened(reply.message))
        case Meaning.OBJECT_MISSING:
            return ObjectNotFound(reply.target)
        case Meaning.DENIED:
            return AccessDenied(reply.target, _denied(reply))
        case Meaning.EXPIRED:
            return CredentialsExpired(reply.target, _expired(reply))
        case Meaning.THROTTLED:
            return Throttled(reply.target, reply.retry_after_s)
        case Meaning.ONE_A_MINUTE:
            return Throttled(reply.target, ONE_MINUTE_S)
        case Meaning.RECEIPT:
            return InvalidReceipt(reply.target, "")
        case Meaning.CONFIGURATION:
            return SettingRefused(reply.target, plain(reply.code), _remedy(reply))
        case Meaning.FAILED:
            return ConnectionFailed(reply.target, _words(reply))
        case Meaning.REFUSED:
            return RequestRefused(reply.target, plain(reply.code), _shortened(reply.message))


def _meaning(reply: _Reply) -> Meaning:
    meaning = meaning_of(reply.code, reply.status)
    if meaning is Meaning.CONFIGURATION and _is_about_a_receipt(reply):
        return Meaning.RECEIPT
    # A HEAD has no body to put a code in: the SDK makes one of the status.
    if reply.code == "404" and reply.service == "s3":
        is_object = reply.operation == "head_object"
        return Meaning.OBJECT_MISSING if is_object else Meaning.CONFIGURATION
    return meaning


def _is_about_a_receipt(reply: _Reply) -> bool:
    # SQS reports an expired handle as a wrong parameter, and tells it apart in words only.
    text = reply.message.lower()
    return plain(reply.code) == "InvalidParameterValue" and (
        "receipt handle" in text
        or "receipthandle" in text
        or "not available for visibility timeout change" in text
    )


def _denied(reply: _Reply) -> str:
    if plain(reply.code).lower().startswith(("kms.", "kmsaccess")):
        return "kms:Decrypt and kms:GenerateDataKey (of the queue's key)"
    if reply.inner:
        return f"sts:{reply.inner}"
    return permission_for(reply.service, reply.operation)


def _expired(reply: _Reply) -> str:
    code = plain(reply.code)
    if code == "RequestTimeTooSkewed":
        return f"{code}: this machine's clock is wrong"
    # Nothing of the message: for a wrong signature it repeats what was signed.
    return code


def _remedy(reply: _Reply) -> str:
    code = plain(reply.code)
    if code in ("NoSuchBucket", "404"):
        return "create the bucket, or correct its name and the region"
    if code.lower().startswith("kms"):
        return f"make the queue's KMS key usable ({_shortened(reply.message)})"
    return _shortened(reply.message) or "AWS does not take this setting"


def _words(reply: _Reply) -> str:
    status = f"HTTP {reply.status}" if reply.status else "no status"
    return ", ".join(
        word for word in (status, plain(reply.code), _shortened(reply.message)) if word
    )


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_DETAIL else f"{line[: MAX_DETAIL - 1]}…"


_CONNECTION = {
    "HTTPClientError",
    "ConnectionError",
    "ResponseParserError",
    "IncompleteReadError",
    "ResponseStreamingError",
    "FlexibleChecksumError",
    "ChecksumMismatch",
    "MetadataRetrievalError",
    "ClientError",  # aiohttp's; botocore's carries a response and was taken before
    "HTTPError",  # urllib3's
    "OSError",
}
_EXPIRED = {
    "CredentialRetrievalError",
    "SSOTokenLoadError",
    "UnauthorizedSSOTokenError",
    "TokenRetrievalError",
    "LoginRefreshTokenError",
    "RefreshWithMFAUnsupportedError",
}
_SETTINGS = {
    "NoCredentialsError": (
        "AwsSettings.credentials",
        "give credentials, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role",
    ),
    "PartialCredentialsError": (
        "AwsSettings.credentials",
        "half a key was found in the environment or the profile; give both halves",
    ),
    "NoRegionError": (
        "AwsSettings.region",
        "name a region, as in region='eu-west-1', or set AWS_DEFAULT_REGION",
    ),
    "InvalidRegionError": ("AwsSettings.region", "name a region, as in region='eu-west-1'"),
    "ProfileNotFound": (
        "AwsSettings.profile",
        "there is no such profile in the AWS configuration files; correct its name, or add it",
    ),
    "ConfigParseError": ("AwsSettings.profile", "the AWS configuration files cannot be read"),
    "InvalidConfigError": ("AwsSettings.profile", "the AWS configuration files do not fit"),
    "SSOError": ("AwsSettings.profile", "run `aws sso login`, or use another profile"),
    "UnknownServiceError": ("boto3", "this SDK does not know the service; install a newer one"),
}


def _fault_of_sdk(error: Exception, target: str) -> PumpError:
    names = [kind.__name__ for kind in type(error).__mro__]
    if not _EXPIRED.isdisjoint(names):
        provider = (getattr(error, "kwargs", None) or {}).get("provider")
        return CredentialsExpired(target, f"{names[0]} ({provider})" if provider else names[0])
    if not _CONNECTION.isdisjoint(names):
        return ConnectionFailed(target, _shortened(f"{names[0]}: {error}"))
    for name in names:
        if name in _SETTINGS:
            field, remedy = _SETTINGS[name]
            return ConfigurationError(field, _value_of(error), remedy)
    return RequestRefused(target, names[0], "the SDK could not make the call; see the cause")


def _value_of(error: Exception) -> object:
    told = getattr(error, "kwargs", None) or {}
    return told.get("profile") or told.get("region_name")


# What AWS's error codes mean to us: one table, for whole calls and for entries of batches.


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

"""What the SDKs' errors become: by code, by status, by kind."""

from __future__ import annotations

import pickle
from typing import Any

import botocore.exceptions as sdk
import pytest
from botocore.parsers import ResponseParserError

from gateways._aws.errors import (
    MAX_DETAIL,
    ObjectNotFound,
    RequestRefused,
    SettingRefused,
    fault_of,
)
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

from .conftest import ACCESS_KEY_ID, TOKEN

CANONICAL = f"AWSAccessKeyId={ACCESS_KEY_ID} x-amz-security-token:{TOKEN}"


def _client_error(
    code: str,
    status: int = 400,
    message: str = "no",
    *,
    operation: str = "ReceiveMessage",
    **headers: str,
) -> Exception:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    reply = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": named},
    }
    return sdk.ClientError(reply, operation)  # type: ignore[no-any-return, unused-ignore]


def _fault(error: Exception, service: str = "sqs", operation: str = "receive_message") -> PumpError:
    return fault_of(error, service=service, operation=operation, target="orders")


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        (
            "QueueDoesNotExist AWS.SimpleQueueService.NonExistentQueue QueueDoesNotExistException "
            "com.amazonaws.sqs#QueueDoesNotExist NonExistentQueue "
            "AWS.SimpleQueueService.NonExistentQueue;Sender NotFound NotFoundException",
            QueueNotFound("orders"),
        ),
        ("QueueNameExists QueueAlreadyExists", QueueMismatch("orders", "no")),
        (
            "AccessDenied AccessDeniedException AuthFailure InvalidSecurity AuthorizationError "
            "AccessDeniedFault",
            AccessDenied("orders", "sqs:ReceiveMessage"),
        ),
        (
            "KmsAccessDenied KMS.AccessDeniedException KMSAccessDeniedException",
            AccessDenied("orders", "kms:Decrypt and kms:GenerateDataKey (of the queue's key)"),
        ),
        (
            "Throttling ThrottlingException RequestThrottled RequestThrottledException "
            "TooManyRequestsException RequestLimitExceeded OverLimit KmsThrottled SlowDown "
            "AWS.SimpleQueueService.OverLimit KMS.ThrottlingException ThrottledException "
            "aws.protocols#ThrottlingException:http://internal.amazon.com/coral/",
            Throttled("orders"),
        ),
        (
            "PurgeQueueInProgress AWS.SimpleQueueService.PurgeQueueInProgress "
            "QueueDeletedRecently AWS.SimpleQueueService.QueueDeletedRecently",
            Throttled("orders", 60.0),
        ),
        (
            "ReceiptHandleIsInvalid com.amazonaws.sqs#ReceiptHandleIsInvalid "
            "AWS.SimpleQueueService.MessageNotInflight MessageNotInflight",
            InvalidReceipt("orders", ""),
        ),
        ("InternalError ServiceUnavailable InternalFailure", ConnectionFailed("orders", "")),
    ],
)
def test_when_aws_answers_with_a_code_then_it_becomes_the_error_to_act_on(
    codes: str, expected: PumpError
) -> None:
    """R51, R52: each cause has its own error, naming the queue."""
    for code in codes.split():
        fault = _fault(_client_error(code, 500 if "Internal" in code else 400))

        assert type(fault) is type(expected), code
        if not isinstance(expected, ConnectionFailed):
            assert _fields(fault) == _fields(expected), code


def _fields(error: PumpError) -> list[object]:
    return [getattr(error, each.name) for each in type(error).__attrs_attrs__]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "code",
    [
        "ExpiredToken",
        "ExpiredTokenException",
        "RequestExpired",
        "UnrecognizedClientException",
        "InvalidClientTokenId",
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "InvalidSignatureException",
        "TokenRefreshRequired",
        "RequestTimeTooSkewed",
    ],
)
def test_when_credentials_are_not_taken_then_the_error_repeats_nothing_that_was_signed(
    code: str,
) -> None:
    """R57: AWS explains a wrong signature by repeating the request's secrets."""
    fault = _fault(_client_error(code, 403, CANONICAL))

    assert isinstance(fault, CredentialsExpired)
    assert fault.detail.startswith(code.removesuffix("Exception"))
    assert TOKEN not in f"{fault!r} {fault}"
    assert ACCESS_KEY_ID not in f"{fault!r} {fault}"


@pytest.mark.parametrize(
    "code",
    [
        "AWS.SimpleQueueService.UnsupportedOperation",
        "InvalidAttributeName",
        "InvalidAttributeValue",
        "InvalidParameterValue",
        "InvalidParameter",
        "ValidationError",
        "ValidationException",
        "KmsDisabled",
        "KMS.NotFoundException",
        "NoSuchBucket",
    ],
)
def test_when_a_setting_is_refused_then_the_error_says_fix_it_and_spares_the_pump(
    code: str,
) -> None:
    """R56, law 7: a pump survives a gateway's error."""
    fault = _fault(
        _client_error(code, 400, "the value is odd"), "s3" if "Bucket" in code else "sqs"
    )

    assert isinstance(fault, SettingRefused)
    assert isinstance(fault, ConfigurationError)
    assert isinstance(fault, GatewayError)
    assert fault.field == "orders"
    assert "bucket" in fault.remedy or "odd" in fault.remedy


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, RequestRefused),
        (403, AccessDenied),
        (404, RequestRefused),
        (408, ConnectionFailed),
        (412, RequestRefused),
        (429, Throttled),
        (500, ConnectionFailed),
        (502, ConnectionFailed),
        (503, ConnectionFailed),
    ],
)
def test_when_a_code_is_unknown_then_the_status_decides(
    status: int, expected: type[PumpError]
) -> None:
    """R51: AWS adds codes now and then."""
    assert type(_fault(_client_error("NewInTheYear2040", status))) is expected


def test_when_s3_slows_down_then_it_is_throttling() -> None:
    """R52: with 503, which elsewhere is a failure."""
    fault = _fault(_client_error("SlowDown", 503, retry_after="7"), "s3", "put_object")

    assert isinstance(fault, Throttled)
    assert fault.retry_after_s == 7.0


@pytest.mark.parametrize("header", ["Wed, 21 Oct 2015 07:28:00 GMT", "", "-1", "nan", "inf"])
def test_when_the_wait_is_not_in_seconds_then_the_backoff_has_to_do(header: str) -> None:
    """R52."""
    fault = _fault(_client_error("Throttling", 429, retry_after=header))

    assert isinstance(fault, Throttled)
    assert fault.retry_after_s is None


@pytest.mark.parametrize(
    ("code", "status", "operation"),
    [("NoSuchKey", 404, "get_object"), ("404", 404, "head_object"), ("NoSuchVersion", 404, "x")],
)
def test_when_an_object_is_missing_then_it_is_told_from_a_missing_bucket(
    code: str, status: int, operation: str
) -> None:
    fault = _fault(_client_error(code, status), "s3", operation)

    assert isinstance(fault, ObjectNotFound)
    assert fault.bucket_key == "orders"


def test_when_a_bucket_is_missing_then_the_remedy_says_so() -> None:
    """R56: a HEAD has no body, so the code is the status."""
    fault = _fault(_client_error("404", 404, "Not Found"), "s3", "head_bucket")

    assert isinstance(fault, ConfigurationError)
    assert "create the bucket" in fault.remedy


@pytest.mark.parametrize(
    ("service", "operation", "permission"),
    [
        ("sqs", "receive_message", "sqs:ReceiveMessage"),
        ("sqs", "delete_message_batch", "sqs:DeleteMessage"),
        ("sqs", "send_message_batch", "sqs:SendMessage"),
        ("sqs", "change_message_visibility_batch", "sqs:ChangeMessageVisibility"),
        ("sqs", "get_queue_url", "sqs:GetQueueUrl"),
        ("sns", "publish_batch", "sns:Publish"),
        ("s3", "head_bucket", "s3:ListBucket"),
        ("s3", "put_object", "s3:PutObject"),
    ],
)
def test_when_access_is_denied_then_the_error_names_the_permission_to_grant(
    service: str, operation: str, permission: str
) -> None:
    fault = _fault(_client_error("AccessDenied", 403), service, operation)

    assert isinstance(fault, AccessDenied)
    assert fault.operation == permission


def test_when_a_role_may_not_be_assumed_then_that_is_the_permission_named() -> None:
    """The SDK assumes the role on the way to the call."""
    fault = _fault(_client_error("AccessDenied", 403, operation="AssumeRoleWithWebIdentity"))

    assert isinstance(fault, AccessDenied)
    assert fault.operation == "sts:AssumeRoleWithWebIdentity"


@pytest.mark.parametrize(
    "error",
    [
        sdk.EndpointConnectionError(endpoint_url="http://sqs"),
        sdk.ConnectTimeoutError(endpoint_url="http://sqs"),
        sdk.ReadTimeoutError(endpoint_url="http://sqs"),
        sdk.ConnectionClosedError(endpoint_url="http://sqs"),
        sdk.ProxyConnectionError(proxy_url="http://proxy"),
        sdk.SSLError(endpoint_url="http://sqs", error="certificate"),
        sdk.HTTPClientError(error="odd"),
        sdk.IncompleteReadError(actual_bytes=1, expected_bytes=2),
        sdk.ResponseStreamingError(error="broken"),
        ResponseParserError("not JSON"),
        ConnectionResetError("reset"),
        TimeoutError("slow"),
        OSError("odd"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_when_the_network_fails_then_the_connection_has_failed(error: Exception) -> None:
    """R51."""
    fault = _fault(error)

    assert isinstance(fault, ConnectionFailed)
    assert fault.target == "orders"
    assert type(error).__name__ in fault.detail


@pytest.mark.parametrize(
    ("error", "field"),
    [
        (sdk.NoCredentialsError(), "AwsSettings.credentials"),
        (sdk.PartialCredentialsError(provider="env", cred_var="x"), "AwsSettings.credentials"),
        (sdk.NoRegionError(), "AwsSettings.region"),
        (sdk.InvalidRegionError(region_name="eu west"), "AwsSettings.region"),
        (sdk.ProfileNotFound(profile="work"), "AwsSettings.profile"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_when_the_sdk_lacks_a_setting_then_it_is_named_with_a_remedy(
    error: Exception, field: str
) -> None:
    """R56."""
    fault = _fault(error)

    assert isinstance(fault, ConfigurationError)
    assert fault.field == field
    assert fault.remedy


@pytest.mark.parametrize(
    "error",
    [
        sdk.CredentialRetrievalError(provider="process", error_msg=CANONICAL),
        sdk.TokenRetrievalError(provider="sso", error_msg=CANONICAL),
        sdk.SSOTokenLoadError(error_msg=CANONICAL),
        sdk.UnauthorizedSSOTokenError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_when_credentials_cannot_be_renewed_then_they_have_expired(error: Exception) -> None:
    """R57: what a helper program printed is not repeated."""
    fault = _fault(error)

    assert isinstance(fault, CredentialsExpired)
    assert TOKEN not in f"{fault!r} {fault}"


def test_when_an_error_is_ours_then_it_stays_as_it_is() -> None:
    ours = QueueNotFound("orders")

    assert _fault(ours) is ours


def test_when_an_error_is_nobodys_then_it_is_a_refusal_with_a_cause_to_look_at() -> None:
    fault = _fault(TypeError(CANONICAL))

    assert isinstance(fault, RequestRefused)
    assert (fault.code, TOKEN in str(fault)) == ("TypeError", False)


def test_when_aws_talks_long_then_the_error_does_not() -> None:
    fault = _fault(_client_error("InvalidParameterValue", 400, "word \n" * 1_000))

    assert isinstance(fault, ConfigurationError)
    assert len(fault.remedy) <= MAX_DETAIL


def test_when_no_target_is_given_then_the_service_is_named() -> None:
    error = _client_error("Throttling")

    fault = fault_of(error, service="sns", operation="publish", target="")

    assert isinstance(fault, Throttled)
    assert fault.target == "sns"


@pytest.mark.parametrize(
    "error",
    [
        ObjectNotFound("bucket/key"),
        RequestRefused("orders", "Code", "why"),
        SettingRefused("orders", "Code", "do this"),
    ],
)
def test_when_an_error_crosses_a_process_then_it_says_the_same(error: Any) -> None:
    there = pickle.loads(pickle.dumps(error))

    assert (type(there), str(there)) == (type(error), str(error))

"""The SDK's errors in our words."""

from __future__ import annotations

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceNotFoundError,
    ServiceRequestError,
)
from azure.servicebus import exceptions as sdk

from gateways.servicebus.errors import NoSessionFree, RequestRefused, ServiceBusTarget, fault_of
from pump.errors import (
    AccessDenied,
    ConnectionFailed,
    CredentialsExpired,
    LeaseLost,
    PumpError,
    QueueNotFound,
    SessionLocked,
    SessionLockLost,
    Throttled,
)

WHERE = ServiceBusTarget("sb://shop", "sending", "orders", "a")


def caused(error: Exception, cause: str) -> Exception:
    error.__context__ = RuntimeError(cause)
    return error


def at_length(words: str) -> str:
    """As Azure says it, before the SDK adds the condition."""
    return f"{words}. For more information please refer to … TrackingId:… {'x' * 400}"


def inside_a_link(cause: Exception) -> Exception:
    """What the SDK makes of an error that it did not expect."""
    error = sdk.ServiceBusError(f"Handler failed: {cause}.")
    error.__context__ = cause
    return error


def same(one: PumpError, other: PumpError) -> bool:
    """Errors are compared by what they are and say."""
    return (type(one), str(one)) == (type(other), str(other))


def answered(status: int) -> HttpResponseError:
    error = HttpResponseError("it said no")
    error.status_code = status
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (sdk.MessagingEntityNotFoundError(), QueueNotFound("orders")),
        (ResourceNotFoundError(), QueueNotFound("orders")),
        (sdk.SessionCannotBeLockedError(), SessionLocked("orders", "a")),
        (sdk.SessionLockLostError(), SessionLockLost("orders", "a")),
        (sdk.MessageLockLostError(), LeaseLost("orders", "")),
        (sdk.ServiceBusServerBusyError(), Throttled("queue 'orders'")),
        (answered(503), Throttled("queue 'orders'")),
        (answered(404), QueueNotFound("orders")),
        (answered(401), AccessDenied("queue 'orders'", "sending")),
    ],
)
def test_when_the_service_says_what_is_wrong_then_so_do_we(
    error: Exception, expected: PumpError
) -> None:
    assert same(fault_of(error, WHERE), expected)


def test_when_the_token_is_refused_because_there_is_no_queue_then_the_queue_is_named() -> None:
    """Azure answers so: it looks for the queue while it looks at the token."""
    error = caused(
        sdk.ServiceBusAuthenticationError(),
        "CBS Token authentication failed.\nStatus code: 404\nDescription: could not be found",
    )

    assert same(fault_of(error, WHERE), QueueNotFound("orders"))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (caused(sdk.ServiceBusAuthenticationError(), "Status code: 401"), AccessDenied),
        (sdk.ServiceBusAuthorizationError(), AccessDenied),
        (caused(sdk.ServiceBusAuthenticationError(), "ExpiredToken: …"), CredentialsExpired),
        (ClientAuthenticationError("no credential"), CredentialsExpired),
        (inside_a_link(ClientAuthenticationError("no credential")), CredentialsExpired),
        (sdk.ServiceBusConnectionError(), ConnectionFailed),
        (sdk.ServiceBusQuotaExceededError(), Throttled),
        (sdk.OperationTimeoutError(), ConnectionFailed),
        (ServiceRequestError("unreachable"), ConnectionFailed),
        (answered(500), ConnectionFailed),
        (answered(400), RequestRefused),
        (sdk.MessageSizeExceededError(), RequestRefused),
        (sdk.MessagingEntityDisabledError(), RequestRefused),
        (sdk.ServiceBusError("no", condition=b"amqp:not-allowed"), RequestRefused),
        (sdk.ServiceBusError("no", condition=b"amqp:not-found"), QueueNotFound),
        (OSError("reset"), ConnectionFailed),
        (ValueError("the SDK is confused"), ConnectionFailed),
    ],
)
def test_when_an_error_leaves_the_sdk_then_it_says_what_to_do(
    error: Exception, kind: type[PumpError]
) -> None:
    fault = fault_of(error, WHERE)

    assert type(fault) is kind
    assert len(str(fault)) < 600


@pytest.mark.parametrize(
    ("condition", "kind"),
    [(b"amqp:not-allowed", RequestRefused), (b"amqp:not-found", QueueNotFound)],
)
def test_when_the_service_says_much_then_the_condition_behind_it_counts(
    condition: bytes, kind: type[PumpError]
) -> None:
    error = sdk.ServiceBusError(at_length("The SessionId was not set"), condition=condition)

    fault = fault_of(error, WHERE)

    assert type(fault) is kind
    assert len(str(fault)) < 600


@pytest.mark.parametrize("words", ["no", at_length("The operation did not complete")])
def test_when_no_session_is_free_then_that_is_no_failure_of_the_connection(words: str) -> None:
    error = sdk.OperationTimeoutError(message=words, condition=b"com.microsoft:timeout")

    fault = fault_of(error, ServiceBusTarget("sb://shop", "accepting", "orders"))

    assert same(fault, NoSessionFree("orders"))


def test_when_the_words_are_long_then_they_are_cut() -> None:
    fault = fault_of(OSError("x" * 1_000), WHERE)

    assert len(str(fault)) < 400


def test_when_the_error_is_ours_then_it_is_kept() -> None:
    error = QueueNotFound("orders")

    assert fault_of(error, WHERE) is error

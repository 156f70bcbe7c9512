"""What the server and the SDK say, in our words (R51, R52, R56)."""

from __future__ import annotations

import pytest

from gateways.nats.errors import (
    MAX_DETAIL,
    RequestRefused,
    api_fault,
    connect_fault,
    no_jetstream,
    violation_of,
)
from pump.errors import (
    AccessDenied,
    ConfigurationError,
    ConnectionFailed,
    CredentialsExpired,
    QueueMismatch,
    QueueNotFound,
    Throttled,
)


@pytest.mark.parametrize(
    ("code", "error_code", "expected"),
    [
        (404, 10059, QueueNotFound),
        (400, 10060, QueueNotFound),
        (400, 10065, QueueMismatch),
        (503, 10039, ConfigurationError),
        (503, 10076, ConfigurationError),
        (503, 10008, Throttled),
        (429, 10167, Throttled),
        (400, 10077, Throttled),
        (503, 1, Throttled),
        (400, 10025, RequestRefused),
    ],
)
def test_when_the_api_refuses_then_the_error_says_what_to_do_next(
    code: int, error_code: int, expected: type[Exception]
) -> None:
    error = api_fault(code, error_code, "said by the server", queue="orders")

    assert type(error) is expected
    assert "orders" in str(error) or "said by the server" in str(error)


def test_when_the_server_says_much_then_the_error_is_one_short_line() -> None:
    error = api_fault(400, 1, "too\nmuch " * 200, queue="orders")

    assert isinstance(error, RequestRefused)
    assert len(error.detail) == MAX_DETAIL
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("nats: 'Authorization Violation'", AccessDenied),
        ("nats: 'Authentication Timeout'", AccessDenied),
        ("nats: 'User Authentication Expired'", CredentialsExpired),
        ("Connect call failed", ConnectionFailed),
        ("", ConnectionFailed),
    ],
)
def test_when_there_is_no_connection_then_the_error_says_why(
    said: str, expected: type[Exception]
) -> None:
    error = connect_fault(OSError(said) if said else OSError(), "nats://host:4222")

    assert type(error) is expected
    assert "nats://host:4222" in str(error)


def test_when_the_sdk_repeats_a_secret_then_the_error_does_not() -> None:
    """R57."""
    error = connect_fault(ValueError("bad url nats://ada:s3cret@host"), "nats://host", ("s3cret",))

    assert "s3cret" not in str(error)


def test_when_jetstream_does_not_answer_then_it_is_off_or_away() -> None:
    assert isinstance(no_jetstream("nats://host", is_there=False), ConfigurationError)
    assert isinstance(no_jetstream("nats://host", is_there=True), ConnectionFailed)


def test_when_an_operation_is_not_permitted_then_its_subject_is_known() -> None:
    error = Exception('nats: permissions violation for publish to "orders.g.a"')

    assert violation_of(error) == ("publish", "orders.g.a")
    assert violation_of(Exception("anything else")) is None

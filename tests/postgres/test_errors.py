"""The server's errors in our words, by SQLSTATE."""

from __future__ import annotations

import pytest

from pump.errors import (
    AccessDenied,
    ConfigurationError,
    ConnectionFailed,
    PumpError,
    QueueNotFound,
    Throttled,
)
from pump.postgres.errors import (
    MAX_DETAIL,
    NO_QUEUE,
    SESSION_OVER,
    StatementRefused,
    connect_fault,
    fault_of,
)

TARGET = "postgres://db/shop"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (None, ConnectionFailed),
        ("08006", ConnectionFailed),
        ("57P01", ConnectionFailed),
        ("57P03", ConnectionFailed),
        ("25006", ConnectionFailed),
        (NO_QUEUE, QueueNotFound),
        ("3F000", QueueNotFound),
        ("42883", QueueNotFound),
        ("42P01", QueueNotFound),
        ("42501", AccessDenied),
        ("40001", Throttled),
        ("40P01", Throttled),
        ("53300", Throttled),
        ("53100", Throttled),
        ("57014", Throttled),
        ("55P03", Throttled),
        (SESSION_OVER, StatementRefused),
        ("22023", StatementRefused),
    ],
)
def test_when_a_statement_fails_then_its_code_says_what_to_do(
    code: str | None, kind: type[PumpError]
) -> None:
    fault = fault_of(
        RuntimeError("said the server"), code=code, target=TARGET, queue="orders", operation="send"
    )

    assert type(fault) is kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('FATAL:  password authentication failed for user "shop"', AccessDenied),
        ("fe_sendauth: no password supplied", AccessDenied),
        ('FATAL:  role "shop" does not exist', AccessDenied),
        ('FATAL:  database "shop" does not exist', ConfigurationError),
        ("FATAL:  sorry, too many clients already", Throttled),
        ("FATAL:  remaining connection slots are reserved for superusers", Throttled),
        ("Connection refused", ConnectionFailed),
        ("", ConnectionFailed),
    ],
)
def test_when_connecting_fails_then_the_words_say_what_to_do(
    text: str, kind: type[PumpError]
) -> None:
    assert type(connect_fault(RuntimeError(text), code=None, target=TARGET)) is kind


def test_when_the_servers_words_hold_the_password_then_it_is_not_repeated() -> None:
    error = RuntimeError('invalid value "s3cret" for something')

    fault = connect_fault(error, code=None, target=TARGET, secrets=("s3cret",))

    assert "s3cret" not in str(fault)


def test_when_the_server_is_long_winded_then_it_is_cut() -> None:
    fault = fault_of(
        RuntimeError("word " * 1_000), code="22000", target=TARGET, queue="", operation="send"
    )

    assert isinstance(fault, StatementRefused)
    assert len(fault.detail) == MAX_DETAIL

import pytest

from pump.errors import (
    ConfigurationError,
    ConnectionFailed,
    HandlerNotFound,
    QueueNotFound,
    SendFailed,
    StorageFailed,
    UnacceptableLimitReached,
    UnsupportedOperation,
)
from pump.exit_codes import ExitCode, Failure, exit_code_of


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError("field", 1, "remedy"), 3),
        (HandlerNotFound("Greet"), 3),
        (UnsupportedOperation("sqs", "peek", "why"), 3),
        (ConnectionFailed("sqs://", "refused"), 4),
        (QueueNotFound("orders"), 4),
        (StorageFailed("queues.db", "disk full"), 4),
        (SendFailed("orders", (("1", ValueError()),)), 4),
        (UnacceptableLimitReached("orders", 3, 60), 5),
        (Failure("no", exit_code=ExitCode.USAGE), 2),
        (RuntimeError("what?"), 1),
        (KeyboardInterrupt(), 130),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_each_error_has_its_exit_code(error: BaseException, code: int) -> None:
    assert exit_code_of(error) == code


def test_when_several_pumps_failed_then_the_most_urgent_reason_counts() -> None:
    group = ExceptionGroup(
        "several pumps stopped",
        [QueueNotFound("orders"), UnacceptableLimitReached("orders", 3, 60)],
    )

    assert exit_code_of(group) == ExitCode.UNACCEPTABLE

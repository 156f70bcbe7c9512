"""What the failed entries of a batch become (R58)."""

from __future__ import annotations

import pytest

from gateways._aws.errors import RequestRefused, entry_fault
from pump.errors import (
    AccessDenied,
    ConnectionFailed,
    GatewayError,
    InvalidReceipt,
    QueueNotFound,
    Throttled,
)

EXPIRED_HANDLE = (
    "Value AQEB… for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
)
NOT_IN_FLIGHT = (
    "Value AQEB… for parameter ReceiptHandle is invalid. Reason: Message does not exist or is "
    "not available for visibility timeout change."
)


@pytest.mark.parametrize(
    ("code", "is_ours", "message", "expected"),
    [
        ("ReceiptHandleIsInvalid", True, "", InvalidReceipt),
        ("InvalidParameterValue", True, EXPIRED_HANDLE, InvalidReceipt),
        ("InvalidParameterValue", True, NOT_IN_FLIGHT, InvalidReceipt),
        ("InvalidParameterValue", True, "DelaySeconds is too long", RequestRefused),
        ("InvalidMessageContents", True, "", RequestRefused),
        ("AWS.SimpleQueueService.UnsupportedOperation", True, "", RequestRefused),
        ("MadeUp", True, "", RequestRefused),
        ("MadeUp", False, "", ConnectionFailed),
        ("InternalError", False, "", ConnectionFailed),
        ("ServiceUnavailable", False, "", ConnectionFailed),
        ("RequestThrottled", False, "", Throttled),
        ("ThrottlingException", True, "", Throttled),
        ("KmsThrottled", True, "", Throttled),
        ("AccessDenied", True, "", AccessDenied),
        ("AWS.SimpleQueueService.NonExistentQueue", True, "", QueueNotFound),
    ],
)
def test_when_an_entry_of_a_batch_fails_then_its_error_is_a_gateways(
    code: str, is_ours: bool, message: str, expected: type[GatewayError]
) -> None:
    """R58: partial failures are reported per message."""
    entry = {"Id": "0", "Code": code, "SenderFault": is_ours, "Message": message}

    fault = entry_fault(entry, operation="delete_message_batch", target="orders")

    assert type(fault) is expected
    assert "orders" in str(fault)


def test_when_an_entry_says_next_to_nothing_then_it_is_a_failure_of_the_other_side() -> None:
    """R58: what is not our fault is tried again."""
    fault = entry_fault({"Id": "0"}, operation="send_message_batch", target="orders")

    assert isinstance(fault, ConnectionFailed)

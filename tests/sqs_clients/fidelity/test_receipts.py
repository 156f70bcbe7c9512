"""What receipts are good for, and when they no longer are."""

from __future__ import annotations

import pytest

from .bench import CONTENT, Bench, pause

pytestmark = pytest.mark.broker


def test_when_the_timeout_has_passed_then_the_message_comes_with_another_receipt(
    json_bench: Bench,
) -> None:
    url = json_bench.make(VisibilityTimeout="1")
    json_bench.send(url)

    first = json_bench.receive_one(url)
    hidden = json_bench.receive(url)
    second = json_bench.receive_one(url, WaitTimeSeconds=5)

    assert hidden == []
    assert first["MessageId"] == second["MessageId"]
    assert first["ReceiptHandle"] != second["ReceiptHandle"]


def test_when_received_without_a_timeout_then_it_is_visible_at_once(bench: Bench) -> None:
    url = bench.make()
    bench.send(url)

    first = bench.receive_one(url, VisibilityTimeout=0)
    second = bench.receive_one(url, VisibilityTimeout=30)

    assert first["ReceiptHandle"] != second["ReceiptHandle"]
    assert bench.receive(url) == []


def test_when_the_visibility_is_ended_then_the_message_comes_again_once(bench: Bench) -> None:
    url = bench.make()
    sent = bench.send(url)
    first = bench.receive_one(url)

    bench.hide(url, first, 0)

    assert bench.receive_one(url)["MessageId"] == sent["MessageId"]
    assert bench.receive(url) == []


def test_when_an_older_receipt_ends_the_visibility_then_the_message_comes_again(
    bench: Bench,
) -> None:
    url = bench.make()
    bench.send(url)
    first = bench.receive_one(url, VisibilityTimeout=0)
    bench.receive_one(url, VisibilityTimeout=30)

    bench.hide(url, first, 0)

    assert len(bench.receive(url, WaitTimeSeconds=1)) == 1


def test_when_the_visibility_is_extended_then_the_message_stays_hidden(json_bench: Bench) -> None:
    url = json_bench.make(VisibilityTimeout="1")
    json_bench.send(url)
    message = json_bench.receive_one(url)

    json_bench.hide(url, message, 3)
    pause(1.5)

    assert json_bench.receive(url) == []
    assert len(json_bench.receive(url, WaitTimeSeconds=5)) == 1


def test_when_the_timeout_has_passed_then_the_visibility_can_still_be_changed(
    json_bench: Bench,
) -> None:
    url = json_bench.make(VisibilityTimeout="1")
    json_bench.send(url)
    message = json_bench.receive_one(url)
    pause(1.2)

    json_bench.hide(url, message, 2)

    assert json_bench.receive(url) == []
    assert len(json_bench.receive(url, WaitTimeSeconds=5)) == 1


def test_when_the_timeout_has_passed_then_a_late_delete_is_honoured(json_bench: Bench) -> None:
    url = json_bench.make()
    json_bench.send(url)
    message = json_bench.receive_one(url, VisibilityTimeout=1)
    pause(1.2)

    json_bench.delete(url, message)

    assert json_bench.counts(url) == (0, 0, 0)


def test_when_an_older_receipt_deletes_then_the_message_is_gone(bench: Bench) -> None:
    """AWS documents that an older receipt may or may not delete; it does here."""
    url = bench.make()
    bench.send(url)
    first = bench.receive_one(url, VisibilityTimeout=0)
    bench.receive_one(url)

    bench.delete(url, first)

    assert bench.counts(url) == (0, 0, 0)


def test_when_a_fifo_receipt_has_expired_then_the_delete_is_refused(json_bench: Bench) -> None:
    url = json_bench.make(**CONTENT, VisibilityTimeout="1")
    json_bench.send_all(url, "g1-m1")
    handle = json_bench.receive_one(url)["ReceiptHandle"]
    pause(1.2)

    refusal = json_bench.refused("delete_message", QueueUrl=url, ReceiptHandle=handle)

    assert refusal.code == "InvalidParameterValue"
    assert refusal.message == (
        f"Value {handle} for parameter ReceiptHandle is invalid. "
        "Reason: The receipt handle has expired."
    )


@pytest.mark.parametrize("is_received_again", [False, True])
def test_when_a_fifo_receipt_has_expired_then_it_changes_no_visibility(
    json_bench: Bench, is_received_again: bool
) -> None:
    """Otherwise a consumer that is late would take the message from the one that has it now."""
    url = json_bench.make(**CONTENT, VisibilityTimeout="1")
    json_bench.send_all(url, "g1-m1")
    handle = json_bench.receive_one(url)["ReceiptHandle"]
    pause(1.2)
    if is_received_again:
        json_bench.receive_one(url, VisibilityTimeout=30)

    refusal = json_bench.refused(
        "change_message_visibility", QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0
    )

    assert refusal.code == "InvalidParameterValue"
    assert refusal.message.endswith("Reason: The receipt handle has expired.")
    assert json_bench.counts(url) == ((0, 1, 0) if is_received_again else (1, 0, 0))


def test_when_a_message_is_deleted_again_then_nothing_happens(bench: Bench) -> None:
    url = bench.make()
    bench.send(url)
    message = bench.receive_one(url)

    bench.delete(url, message, message, message)

    assert bench.counts(url) == (0, 0, 0)


def test_when_a_deleted_messages_visibility_is_changed_then_it_is_refused(bench: Bench) -> None:
    url = bench.make()
    bench.send(url)
    message = bench.receive_one(url)
    handle = message["ReceiptHandle"]
    bench.hide(url, message, 42)
    bench.delete(url, message)

    refusal = bench.refused(
        "change_message_visibility", QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=42
    )

    assert refusal.code == "InvalidParameterValue"
    assert refusal.message == (
        f"Value {handle} for parameter ReceiptHandle is invalid. Reason: Message does not exist "
        "or is not available for visibility timeout change."
    )


@pytest.mark.parametrize(
    ("operation", "more"),
    [("delete_message", {}), ("change_message_visibility", {"VisibilityTimeout": 60})],
)
def test_when_a_receipt_is_none_then_it_is_quoted(
    bench: Bench, operation: str, more: dict[str, int]
) -> None:
    refusal = bench.refused(operation, QueueUrl=bench.make(), ReceiptHandle="garbage", **more)

    assert refusal.code == "ReceiptHandleIsInvalid"
    assert refusal.message == ('The input receipt handle "garbage" is not a valid receipt handle.')


def test_when_a_receipt_is_of_another_queue_then_it_is_refused(bench: Bench) -> None:
    url, other = bench.make(), bench.make()
    bench.send(url)
    handle = bench.receive_one(url)["ReceiptHandle"]

    refusal = bench.refused("delete_message", QueueUrl=other, ReceiptHandle=handle)

    assert refusal.code in ("ReceiptHandleIsInvalid", "InvalidParameterValue")
    assert bench.counts(url) == (0, 1, 0)


@pytest.mark.parametrize("seconds", [-1, 43201])
def test_when_a_visibility_is_out_of_its_range_then_it_is_refused(
    bench: Bench, seconds: int
) -> None:
    url = bench.make()
    bench.send(url)
    handle = bench.receive_one(url)["ReceiptHandle"]

    refusal = bench.refused(
        "change_message_visibility", QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=seconds
    )

    assert refusal.code == "InvalidParameterValue"
    assert "VisibilityTimeout" in refusal.message


def test_when_a_hidden_message_returns_then_it_is_before_a_younger_one(
    json_bench: Bench,
) -> None:
    url = json_bench.make()
    json_bench.send(url, "older")
    json_bench.receive_one(url, VisibilityTimeout=1)
    json_bench.send(url, "younger")
    pause(1.3)

    assert json_bench.bodies(url, 1) == ["older"]

"""Batches fail as a whole or entry by entry, as on AWS."""

from __future__ import annotations

from typing import Any

import pytest

from .bench import CONTENT, FIFO, Bench, entries

pytestmark = pytest.mark.broker

PREFIX = "AWS.SimpleQueueService."
BAD_ID = (
    "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
    "It can be at most 80 letters long."
)
OPERATIONS: dict[str, dict[str, Any]] = {
    "send_message_batch": {"MessageBody": "body"},
    "delete_message_batch": {"ReceiptHandle": "handle"},
    "change_message_visibility_batch": {"ReceiptHandle": "handle", "VisibilityTimeout": 1},
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    ("ids", "code", "message"),
    [
        ([], "EmptyBatchRequest", "at least one"),
        (
            [str(number) for number in range(20)],
            "TooManyEntriesInBatchRequest",
            "Maximum number of entries per request are 10. You have sent 20.",
        ),
        (["a", "b", "a"], "BatchEntryIdsNotDistinct", "Id a repeated."),
        ([""], "InvalidBatchEntryId", BAD_ID),
        (["invalid:id"], "InvalidBatchEntryId", BAD_ID),
        (["testLongId" * 10], "InvalidBatchEntryId", BAD_ID),
    ],
)
def test_when_a_batch_is_malformed_then_it_fails_as_a_whole(
    bench: Bench, operation: str, ids: list[str], code: str, message: str
) -> None:
    batch = [{"Id": each, **OPERATIONS[operation]} for each in ids]

    refusal = bench.refused(operation, QueueUrl=bench.make(), Entries=batch)

    assert (refusal.code, refusal.status) == (PREFIX + code, 400)
    assert message in refusal.message


def test_when_a_batch_is_too_long_then_it_fails_as_a_whole(json_bench: Bench) -> None:
    limit = 1024 * 1024
    attributes = {"k": {"DataType": "String", "StringValue": "x"}}
    size = len("k" + "String" + "x")
    url = json_bench.make()
    batch: list[dict[str, Any]] = [
        {"Id": "1", "MessageBody": "a" * (limit - size), "MessageAttributes": attributes},
        {"Id": "2", "MessageBody": "a"},
    ]

    refusal = json_bench.refused("send_message_batch", QueueUrl=url, Entries=batch)

    assert refusal.code == PREFIX + "BatchRequestTooLong"
    assert refusal.message == (
        f"Batch requests cannot be longer than {limit} bytes. You have sent {limit + 1} bytes."
    )
    assert json_bench.counts(url) == (0, 0, 0)


def test_when_the_queues_own_limit_is_lower_then_it_is_no_limit_of_the_batch(
    bench: Bench,
) -> None:
    url = bench.make(MaximumMessageSize="2048")
    attributes = {"k": {"DataType": "String", "StringValue": "x"}}
    batch: list[dict[str, Any]] = [
        {"Id": "1", "MessageBody": "a" * 2040, "MessageAttributes": attributes},
        {"Id": "2", "MessageBody": "a"},
    ]

    answer = bench.sqs.send_message_batch(QueueUrl=url, Entries=batch)

    first, second = answer["Successful"]
    assert answer.get("Failed", []) == []
    assert first["MD5OfMessageBody"] == "f44facf5a7ee0af446ecf3e0f854441e"
    assert first["MD5OfMessageAttributes"] == "a45daa70926828a2f0a1db3418e6feb4"
    assert second["MD5OfMessageBody"] == "0cc175b9c0f1b6a831c399e269772661"


def test_when_one_body_is_invalid_then_the_others_are_sent(bench: Bench) -> None:
    url = bench.make()
    bodies = [str(number) for number in range(9)]

    answer = bench.sqs.send_message_batch(QueueUrl=url, Entries=entries([*bodies, "\x01"]))

    [failed] = answer["Failed"]
    assert (failed["Id"], failed["Code"], failed["SenderFault"]) == (
        "9",
        "InvalidMessageContents",
        True,
    )
    assert [each["Id"] for each in answer["Successful"]] == bodies
    assert sorted(bench.bodies(url)) == bodies


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"MessageGroupId": "g"},
            "The queue should either have ContentBasedDeduplication enabled or "
            "MessageDeduplicationId provided explicitly",
        ),
        (
            {"MessageDeduplicationId": "d2"},
            "The request must contain the parameter MessageGroupId.",
        ),
    ],
)
def test_when_a_fifo_entry_lacks_an_id_then_the_batch_fails_as_a_whole(
    bench: Bench, fields: dict[str, str], message: str
) -> None:
    url = bench.make(**FIFO)
    whole = {"MessageGroupId": "g", "MessageDeduplicationId": "d1"}
    batch = [
        {"Id": "a", "MessageBody": "body", **whole},
        {"Id": "b", "MessageBody": "body", **fields},
    ]

    refusal = bench.refused("send_message_batch", QueueUrl=url, Entries=batch)

    assert (refusal.code, refusal.message) == ("InvalidParameterValue", message)
    assert bench.counts(url) == (0, 0, 0)


def test_when_entries_have_delays_then_each_waits_its_own(json_bench: Bench) -> None:
    url = json_bench.make()
    batch = entries(["late", "now"])
    batch[0]["DelaySeconds"] = 1

    json_bench.sqs.send_message_batch(QueueUrl=url, Entries=batch)

    assert json_bench.bodies(url) == ["now"]
    assert json_bench.bodies(url, WaitTimeSeconds=5) == ["late"]


def test_when_a_fifo_batch_is_sent_then_it_keeps_its_order(bench: Bench) -> None:
    url = bench.make(**CONTENT)
    bodies = [f"m{number}" for number in range(10)]

    answer = bench.sqs.send_message_batch(QueueUrl=url, Entries=entries(bodies, MessageGroupId="g"))

    numbers = [int(each["SequenceNumber"]) for each in answer["Successful"]]
    assert numbers == sorted(set(numbers))
    assert bench.bodies(url) == bodies


def test_when_a_body_is_empty_then_only_its_entry_fails(bench: Bench) -> None:
    url = bench.make()

    answer = bench.sqs.send_message_batch(QueueUrl=url, Entries=entries(["one", "", "three"]))

    [failed] = answer["Failed"]
    assert (failed["Id"], failed["Code"], failed["SenderFault"]) == ("1", "MissingParameter", True)
    assert failed["Message"] == (
        "The request must contain the parameter SendMessageBatchRequestEntry.2.MessageBody."
    )
    assert sorted(bench.bodies(url)) == ["one", "three"]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_when_an_entry_has_no_id_then_it_is_named_by_its_number(
    json_bench: Bench, operation: str
) -> None:
    entry = OPERATIONS[operation]

    refusal = json_bench.refused(
        operation, QueueUrl=json_bench.make(), Entries=[{"Id": "1", **entry}, entry]
    )

    assert (refusal.code, refusal.status) == ("MissingParameter", 400)
    assert refusal.message.endswith("BatchRequestEntry.2.Id.")


def test_when_some_receipts_are_invalid_then_only_these_fail(bench: Bench) -> None:
    url = bench.make()
    bench.send(url)
    handle = bench.receive_one(url)["ReceiptHandle"]
    batch = [
        {"Id": "good", "ReceiptHandle": handle},
        {"Id": "bad", "ReceiptHandle": "garbage"},
    ]

    changed = bench.sqs.change_message_visibility_batch(
        QueueUrl=url, Entries=[{**each, "VisibilityTimeout": 60} for each in batch]
    )
    deleted = bench.sqs.delete_message_batch(QueueUrl=url, Entries=batch)

    for answer in (changed, deleted):
        [failed] = answer["Failed"]
        assert [each["Id"] for each in answer["Successful"]] == ["good"]
        assert (failed["Id"], failed["SenderFault"]) == ("bad", True)
        assert failed["Code"] == "ReceiptHandleIsInvalid"
    assert bench.counts(url) == (0, 0, 0)

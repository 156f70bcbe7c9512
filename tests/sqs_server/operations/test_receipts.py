"""Deleting what was received, and changing how long it is hidden."""

import pytest

from .harness import Service


async def test_when_a_message_is_deleted_then_it_is_gone_and_deleting_again_succeeds(
    service: Service,
) -> None:
    """R44."""
    url = await service.queue(VisibilityTimeout="1")
    await service.send(url)
    [message] = await service.receive(url)

    for _ in range(3):
        deleted = await service.call(
            "DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"]
        )
        assert deleted == {}
    await service.clock.advance(5)

    assert await service.receive(url) == []


@pytest.mark.parametrize("operation", ["DeleteMessage", "ChangeMessageVisibility"])
async def test_when_a_receipt_is_garbage_then_the_refusal_quotes_it(
    service: Service, operation: str
) -> None:
    """R44."""
    url = await service.queue()
    timeout = {"VisibilityTimeout": 1} if operation == "ChangeMessageVisibility" else {}

    refused = await service.refusal(operation, QueueUrl=url, ReceiptHandle="garbage", **timeout)

    assert refused.code == "ReceiptHandleIsInvalid"
    assert refused.message == 'The input receipt handle "garbage" is not a valid receipt handle.'


@pytest.mark.parametrize("operation", ["DeleteMessage", "ChangeMessageVisibility"])
async def test_when_a_receipt_is_another_queues_then_the_refusal_says_so_in_the_words_of_aws(
    service: Service, operation: str
) -> None:
    """R44."""
    url, other = await service.queue("one"), await service.queue("two")
    await service.send(url)
    [message] = await service.receive(url)
    receipt = message["ReceiptHandle"]
    timeout = {"VisibilityTimeout": 1} if operation == "ChangeMessageVisibility" else {}

    refused = await service.refusal(operation, QueueUrl=other, ReceiptHandle=receipt, **timeout)

    assert refused.code == "ReceiptHandleIsInvalid"
    assert refused.message == f'The receipt handle "{receipt}" is not valid for this queue.'


async def test_when_a_standard_message_s_timeout_is_over_then_its_receipt_still_deletes(
    service: Service,
) -> None:
    """R44."""
    url = await service.queue(VisibilityTimeout="1")
    await service.send(url)
    [message] = await service.receive(url)
    await service.clock.advance(2)

    await service.call("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    assert await service.receive(url) == []


async def test_when_a_fifo_message_s_timeout_is_over_then_its_receipt_has_expired(
    service: Service,
) -> None:
    """R44."""
    url = await service.queue("orders.fifo", VisibilityTimeout="1")
    await service.send(url, MessageGroupId="g", MessageDeduplicationId="d")
    [message] = await service.receive(url)
    await service.clock.advance(2)

    refused = await service.refusal(
        "DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"]
    )

    assert refused.query_code == "InvalidParameterValue"
    assert refused.message == (
        f"Value {message['ReceiptHandle']} for parameter ReceiptHandle is invalid. "
        "Reason: The receipt handle has expired."
    )


async def test_when_the_timeout_is_changed_then_it_counts_from_now(service: Service) -> None:
    """R44."""
    url = await service.queue()
    await service.send(url)
    [message] = await service.receive(url)

    changed = await service.call(
        "ChangeMessageVisibility",
        QueueUrl=url,
        ReceiptHandle=message["ReceiptHandle"],
        VisibilityTimeout=5,
    )
    await service.clock.advance(4)
    hidden = await service.receive(url)
    await service.clock.advance(1)

    assert (changed, hidden) == ({}, [])
    assert len(await service.receive(url)) == 1


async def test_when_the_message_was_deleted_then_its_timeout_cannot_be_changed(
    service: Service,
) -> None:
    """R44."""
    url = await service.queue()
    await service.send(url)
    [message] = await service.receive(url)
    receipt = message["ReceiptHandle"]
    await service.call("DeleteMessage", QueueUrl=url, ReceiptHandle=receipt)

    refused = await service.refusal(
        "ChangeMessageVisibility", QueueUrl=url, ReceiptHandle=receipt, VisibilityTimeout=1
    )

    assert refused.query_code == "InvalidParameterValue"
    assert refused.message == (
        f"Value {receipt} for parameter ReceiptHandle is invalid. Reason: Message does not exist "
        "or is not available for visibility timeout change."
    )


@pytest.mark.parametrize("timeout_s", [-1, 43_201])
async def test_when_a_timeout_is_out_of_range_then_it_is_refused(
    service: Service, timeout_s: int
) -> None:
    """R44."""
    url = await service.queue()

    refused = await service.refusal(
        "ChangeMessageVisibility", QueueUrl=url, ReceiptHandle="x", VisibilityTimeout=timeout_s
    )

    assert refused.query_code == "InvalidParameterValue"
    assert refused.message == (
        f"Value {timeout_s} for parameter VisibilityTimeout is invalid. "
        "Reason: VisibilityTimeout must be an integer between 0 and 43200."
    )


async def test_when_a_message_would_be_hidden_beyond_12_hours_in_all_then_it_is_refused(
    service: Service,
) -> None:
    """R44."""
    url = await service.queue(VisibilityTimeout="600")
    await service.send(url)
    [message] = await service.receive(url)
    await service.clock.advance(300)

    refused = await service.refusal(
        "ChangeMessageVisibility",
        QueueUrl=url,
        ReceiptHandle=message["ReceiptHandle"],
        VisibilityTimeout=43_200,
    )

    assert refused.query_code == "InvalidParameterValue"
    assert "beyond the limit [43200 seconds]" in refused.message


async def test_when_a_timeout_is_missing_then_it_is_named(service: Service) -> None:
    """R44."""
    url = await service.queue()

    refused = await service.refusal("ChangeMessageVisibility", QueueUrl=url, ReceiptHandle="x")

    assert refused.message == "The request must contain the parameter VisibilityTimeout."


async def test_when_a_batch_is_deleted_then_each_entry_gets_its_answer(service: Service) -> None:
    """R44."""
    url = await service.queue(VisibilityTimeout="1")
    await service.send(url)
    [message] = await service.receive(url)
    entries = [
        {"Id": "bad", "ReceiptHandle": "garbage"},
        {"Id": "good", "ReceiptHandle": message["ReceiptHandle"]},
    ]

    deleted = await service.call("DeleteMessageBatch", QueueUrl=url, Entries=entries)
    await service.clock.advance(5)

    assert deleted["Successful"] == [{"Id": "good"}]
    assert deleted["Failed"] == [
        {
            "Id": "bad",
            "SenderFault": True,
            "Code": "ReceiptHandleIsInvalid",
            "Message": 'The input receipt handle "garbage" is not a valid receipt handle.',
        }
    ]
    assert await service.receive(url) == []


@pytest.mark.parametrize("operation", ["DeleteMessageBatch", "ChangeMessageVisibilityBatch"])
async def test_when_entries_fail_then_they_are_told_in_the_order_they_came(
    service: Service, operation: str
) -> None:
    url = await service.queue()
    await service.send(url)
    [message] = await service.receive(url)
    entries: list[dict[str, object]] = [
        {"Id": "bad", "ReceiptHandle": "garbage", "VisibilityTimeout": 1},
        {"Id": "none", "VisibilityTimeout": 1},
        {"Id": "good", "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 1},
        {"Id": "empty", "ReceiptHandle": "", "VisibilityTimeout": 1},
    ]

    answer = await service.call(operation, QueueUrl=url, Entries=entries)

    assert answer["Successful"] == [{"Id": "good"}]
    assert [(entry["Id"], entry["Code"]) for entry in answer["Failed"]] == [
        ("bad", "ReceiptHandleIsInvalid"),
        ("none", "MissingParameter"),
        ("empty", "MissingParameter"),
    ]
    assert answer["Failed"][1]["Message"] == (
        "The request must contain the parameter ReceiptHandle."
    )


async def test_when_a_batch_of_timeouts_is_changed_then_each_entry_gets_its_answer(
    service: Service,
) -> None:
    """R44."""
    url = await service.queue()
    await service.send(url)
    [message] = await service.receive(url)
    entries = [
        {"Id": "good", "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 0},
        {"Id": "bad", "ReceiptHandle": "garbage", "VisibilityTimeout": 0},
        {"Id": "long", "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 50_000},
    ]

    changed = await service.call("ChangeMessageVisibilityBatch", QueueUrl=url, Entries=entries)

    assert changed["Successful"] == [{"Id": "good"}]
    assert {entry["Id"]: entry["Code"] for entry in changed["Failed"]} == {
        "bad": "ReceiptHandleIsInvalid",
        "long": "InvalidParameterValue",
    }
    assert len(await service.receive(url)) == 1


@pytest.mark.parametrize(
    ("operation", "shape"),
    [
        ("DeleteMessageBatch", "DeleteMessageBatchRequestEntry"),
        ("ChangeMessageVisibilityBatch", "ChangeMessageVisibilityBatchRequestEntry"),
    ],
)
async def test_when_a_batch_is_empty_or_too_long_then_it_is_refused_as_a_whole(
    service: Service, operation: str, shape: str
) -> None:
    """R44."""
    url = await service.queue()
    entries = [
        {"Id": str(number), "ReceiptHandle": "x", "VisibilityTimeout": 1} for number in range(11)
    ]

    empty = await service.refusal(operation, QueueUrl=url, Entries=[])
    too_many = await service.refusal(operation, QueueUrl=url, Entries=entries)

    assert empty.message == f"There should be at least one {shape} in the request."
    assert too_many.code == "TooManyEntriesInBatchRequest"


async def test_when_a_standard_message_was_received_again_then_the_older_receipt_still_works(
    service: Service,
) -> None:
    """R44: what AWS does, though its documentation says otherwise."""
    url = await service.queue()
    await service.send(url)
    [first] = await service.receive(url, VisibilityTimeout=0)
    await service.receive(url, VisibilityTimeout=30)

    await service.call(
        "ChangeMessageVisibility",
        QueueUrl=url,
        ReceiptHandle=first["ReceiptHandle"],
        VisibilityTimeout=0,
    )
    again = await service.receive(url)
    await service.call("DeleteMessage", QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    await service.clock.advance(60)

    assert len(again) == 1
    assert await service.receive(url) == []

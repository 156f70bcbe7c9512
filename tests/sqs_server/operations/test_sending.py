"""SendMessage and SendMessageBatch."""

from hashlib import sha256
from typing import Any

import pytest

from .harness import Service

_TRACE = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"


async def test_when_a_message_is_sent_then_its_sender_learns_the_id_and_the_digests(
    service: Service,
) -> None:
    """R44."""
    url = await service.queue()

    sent = await service.send(
        url,
        "msg",
        MessageAttributes={"Foo": {"DataType": "String", "StringValue": "Bar"}},
        MessageSystemAttributes={"AWSTraceHeader": {"DataType": "String", "StringValue": _TRACE}},
    )

    assert set(sent) == {
        "MessageId",
        "MD5OfMessageBody",
        "MD5OfMessageAttributes",
        "MD5OfMessageSystemAttributes",
    }
    assert sent["MD5OfMessageBody"] == "6e2baaf3b97dbeef01c0043275f9a0e7"
    assert sent["MD5OfMessageAttributes"] == "ae7155c6026991b6d54b11589678bf9c"
    assert sent["MD5OfMessageSystemAttributes"] == "5ae4d5d7636402d80f4eb6d213245a88"


async def test_when_a_message_has_no_attributes_then_there_is_no_digest_of_them(
    service: Service,
) -> None:
    """R44."""
    url = await service.queue()

    assert set(await service.send(url)) == {"MessageId", "MD5OfMessageBody"}


async def test_when_a_body_is_empty_then_it_counts_as_missing(service: Service) -> None:
    """R44."""
    url = await service.queue()

    refused = await service.refusal("SendMessage", QueueUrl=url, MessageBody="")

    assert refused.query_code == "MissingParameter"
    assert refused.message == "The request must contain the parameter MessageBody."


async def test_when_a_body_has_illegal_characters_then_the_refusal_lists_the_legal_ones(
    service: Service,
) -> None:
    """R44."""
    url = await service.queue()

    refused = await service.refusal("SendMessage", QueueUrl=url, MessageBody="\x01")

    assert refused.code == "InvalidMessageContents"


async def test_when_body_and_attributes_are_at_the_limit_then_one_byte_more_is_refused(
    service: Service,
) -> None:
    """R44."""
    url = await service.queue(MaximumMessageSize="1024")
    attributes = {"k": {"DataType": "String", "StringValue": "x"}}

    await service.send(url, "a" * 1024)
    await service.send(url, "a" * (1024 - 8), MessageAttributes=attributes)
    refused = await service.refusal(
        "SendMessage", QueueUrl=url, MessageBody="a" * (1024 - 7), MessageAttributes=attributes
    )

    assert refused.query_code == "InvalidParameterValue"
    assert refused.message == (
        "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes."
    )


@pytest.mark.parametrize("delay_s", [-1, 901])
async def test_when_a_delay_is_out_of_range_then_the_message_is_refused(
    service: Service, delay_s: int
) -> None:
    """R44."""
    url = await service.queue()

    refused = await service.refusal(
        "SendMessage", QueueUrl=url, MessageBody="x", DelaySeconds=delay_s
    )

    assert refused.message == (
        f"Value {delay_s} for parameter DelaySeconds is invalid. "
        "Reason: DelaySeconds must be >= 0 and <= 900."
    )


async def test_when_a_message_sets_no_delay_of_its_own_then_the_queue_s_own_applies(
    service: Service,
) -> None:
    """R44."""
    url = await service.queue(DelaySeconds="10")

    await service.send(url, "later")
    await service.send(url, "now", DelaySeconds=0)

    assert [each["Body"] for each in await service.receive(url, MaxNumberOfMessages=10)] == ["now"]
    await service.clock.advance(10)
    assert [each["Body"] for each in await service.receive(url)] == ["later"]


@pytest.mark.parametrize("value", ["", "a" * 129, "group 123", "g\x08"])
@pytest.mark.parametrize("name", ["MessageGroupId", "MessageDeduplicationId"])
async def test_when_a_group_or_deduplication_id_is_malformed_then_the_message_is_refused(
    service: Service, name: str, value: str
) -> None:
    """R44."""
    url = await service.queue("orders.fifo")
    ids = {"MessageGroupId": "g", "MessageDeduplicationId": "d", name: value}

    refused = await service.refusal("SendMessage", QueueUrl=url, MessageBody="x", **ids)

    assert refused.message == (
        f"Value {value} for parameter {name} is invalid. Reason: {name} can only include "
        "alphanumeric and punctuation characters. 1 to 128 in length."
    )


async def test_when_a_fifo_message_lacks_what_it_needs_then_it_is_refused(
    service: Service,
) -> None:
    """R44."""
    url = await service.queue("orders.fifo")

    no_group = await service.refusal(
        "SendMessage", QueueUrl=url, MessageBody="x", MessageDeduplicationId="d"
    )
    no_id = await service.refusal("SendMessage", QueueUrl=url, MessageBody="x", MessageGroupId="g")
    delayed = await service.refusal(
        "SendMessage",
        QueueUrl=url,
        MessageBody="x",
        MessageGroupId="g",
        MessageDeduplicationId="d",
        DelaySeconds=2,
    )

    assert no_group.query_code == "MissingParameter"
    assert no_group.message == "The request must contain the parameter MessageGroupId."
    assert no_id.query_code == "InvalidParameterValue"
    assert no_id.message == (
        "The queue should either have ContentBasedDeduplication enabled or "
        "MessageDeduplicationId provided explicitly"
    )
    assert delayed.message == (
        "Value 2 for parameter DelaySeconds is invalid. "
        "Reason: The request include parameter that is not valid for this queue type."
    )


async def test_when_a_fifo_queue_deduplicates_by_content_then_the_id_is_the_body_s_sha256(
    service: Service,
) -> None:
    """R44."""
    url = await service.queue("orders.fifo", ContentBasedDeduplication="true")

    first = await service.send(url, "same", MessageGroupId="g")
    second = await service.send(url, "same", MessageGroupId="h")
    [message] = await service.receive(url, MaxNumberOfMessages=10, AttributeNames=["All"])

    assert message["Attributes"]["MessageDeduplicationId"] == sha256(b"same").hexdigest()
    assert (first["MessageId"], first["SequenceNumber"]) == (
        second["MessageId"],
        second["SequenceNumber"],
    )


async def test_when_a_fifo_queue_has_a_delay_then_a_message_s_zero_does_not_undo_it(
    service: Service,
) -> None:
    """R44."""
    url = await service.queue("orders.fifo", ContentBasedDeduplication="true", DelaySeconds="2")

    await service.send(url, "x", MessageGroupId="g", DelaySeconds=0)

    assert await service.receive(url) == []
    await service.clock.advance(2)
    assert len(await service.receive(url)) == 1


async def test_when_a_standard_queue_gets_a_group_then_it_is_kept_and_a_deduplication_id_refused(
    service: Service,
) -> None:
    """R44."""
    url = await service.queue()

    sent = await service.send(url, "x", MessageGroupId="tenant")
    [message] = await service.receive(url, AttributeNames=["All"])
    refused = await service.refusal(
        "SendMessage", QueueUrl=url, MessageBody="x", MessageDeduplicationId="d"
    )

    assert "SequenceNumber" not in sent
    assert message["Attributes"]["MessageGroupId"] == "tenant"
    assert refused.query_code == "InvalidParameterValue"


def _entries(*bodies: str) -> list[dict[str, Any]]:
    return [{"Id": f"id-{number}", "MessageBody": body} for number, body in enumerate(bodies)]


async def test_when_a_batch_is_sent_then_each_entry_gets_its_answer(service: Service) -> None:
    """R44."""
    url = await service.queue()
    entries = _entries("a", "\x01", "b" * 1_000)
    entries[2]["MessageAttributes"] = {"k": {"DataType": "String", "StringValue": "x"}}

    sent = await service.call("SendMessageBatch", QueueUrl=url, Entries=entries)

    assert [set(entry) for entry in sent["Successful"]] == [
        {"Id", "MessageId", "MD5OfMessageBody"},
        {"Id", "MessageId", "MD5OfMessageBody", "MD5OfMessageAttributes"},
    ]
    [failure] = sent["Failed"]
    assert (failure["Id"], failure["Code"], failure["SenderFault"]) == (
        "id-1",
        "InvalidMessageContents",
        True,
    )
    received = await service.receive(url, MaxNumberOfMessages=10)
    assert [each["MessageId"] for each in received] == [
        entry["MessageId"] for entry in sent["Successful"]
    ]


async def test_when_all_entries_are_sent_then_nothing_is_listed_as_failed_and_the_reverse(
    service: Service,
) -> None:
    """R44."""
    url = await service.queue()

    good = await service.call("SendMessageBatch", QueueUrl=url, Entries=_entries("a"))
    bad = await service.call("SendMessageBatch", QueueUrl=url, Entries=_entries("\x01"))

    assert set(good) == {"Successful"}
    assert set(bad) == {"Failed"}


async def test_when_an_entry_is_over_the_queue_s_limit_then_only_it_fails(
    service: Service,
) -> None:
    """R44."""
    url = await service.queue(MaximumMessageSize="1024")

    sent = await service.call(
        "SendMessageBatch", QueueUrl=url, Entries=_entries("a" * 1024, "a" * 1025)
    )

    assert len(sent["Successful"]) == 1
    assert sent["Failed"] == [
        {
            "Id": "id-1",
            "SenderFault": True,
            "Code": "InvalidParameterValue",
            "Message": "One or more parameters cannot be validated. "
            "Reason: Message must be shorter than 1024 bytes.",
        }
    ]


async def test_when_a_batch_is_too_long_together_then_nothing_is_sent(service: Service) -> None:
    """R44."""
    url = await service.queue()

    refused = await service.refusal(
        "SendMessageBatch", QueueUrl=url, Entries=_entries("a" * 1_048_576, "a")
    )

    assert refused.code == "BatchRequestTooLong"
    assert refused.message == (
        "Batch requests cannot be longer than 1048576 bytes. You have sent 1048577 bytes."
    )
    assert await service.receive(url) == []


@pytest.mark.parametrize(
    ("entries", "code", "message"),
    [
        (
            [],
            "EmptyBatchRequest",
            "There should be at least one SendMessageBatchRequestEntry in the request.",
        ),
        (
            _entries(*"abcdefghijk"),
            "TooManyEntriesInBatchRequest",
            "Maximum number of entries per request are 10. You have sent 11.",
        ),
        (
            [{"Id": "a", "MessageBody": "1"}, {"Id": "a", "MessageBody": "2"}],
            "BatchEntryIdsNotDistinct",
            "Id a repeated.",
        ),
        (
            [{"Id": each, "MessageBody": "1"} for each in ("a", "a", "b c")],
            "BatchEntryIdsNotDistinct",
            "Id a repeated.",
        ),
        *(
            (
                [{"Id": each, "MessageBody": "1"} for each in ("a", bad, "b", "a")],
                "InvalidBatchEntryId",
                "A batch entry id can only contain alphanumeric characters, hyphens and "
                "underscores. It can be at most 80 letters long.",
            )
            for bad in ("", "a:b", "a b", "a\n", "a" * 81)
        ),
    ],
)
async def test_when_a_batch_is_wrong_as_a_whole_then_it_is_refused_as_a_whole(
    service: Service, entries: list[dict[str, Any]], code: str, message: str
) -> None:
    """R44."""
    url = await service.queue()

    refused = await service.refusal("SendMessageBatch", QueueUrl=url, Entries=entries)

    assert (refused.code, refused.message) == (code, message)
    assert refused.query_code == f"AWS.SimpleQueueService.{code}"


@pytest.mark.parametrize("missing", ["MessageGroupId", "MessageDeduplicationId"])
async def test_when_one_fifo_entry_lacks_an_id_then_the_whole_batch_is_refused(
    service: Service, missing: str
) -> None:
    """R44."""
    url = await service.queue("orders.fifo")
    entries = [
        {**entry, "MessageGroupId": "g", "MessageDeduplicationId": entry["Id"]}
        for entry in _entries("a", "b")
    ]
    del entries[1][missing]

    refused = await service.refusal("SendMessageBatch", QueueUrl=url, Entries=entries)

    assert refused.query_code == "InvalidParameterValue"
    assert missing in refused.message
    assert await service.receive(url) == []


_NO_BODY = "The request must contain the parameter SendMessageBatchRequestEntry.2.MessageBody."


async def test_when_an_entry_has_no_body_then_it_fails_alone(service: Service) -> None:
    """R44."""
    url = await service.queue()

    sent = await service.call("SendMessageBatch", QueueUrl=url, Entries=_entries("a", "", "c"))

    assert [each["Id"] for each in sent["Successful"]] == ["id-0", "id-2"]
    assert sent["Failed"] == [
        {"Id": "id-1", "SenderFault": True, "Code": "MissingParameter", "Message": _NO_BODY}
    ]


async def test_when_a_fifo_entry_has_no_body_then_the_batch_is_refused(service: Service) -> None:
    url = await service.queue("orders.fifo", ContentBasedDeduplication="true")
    entries = [{**entry, "MessageGroupId": "g"} for entry in _entries("a", "")]

    refused = await service.refusal("SendMessageBatch", QueueUrl=url, Entries=entries)

    assert (refused.query_code, refused.message) == ("MissingParameter", _NO_BODY)


@pytest.mark.parametrize("operation", ["SendMessageBatch", "DeleteMessageBatch"])
async def test_when_an_entry_has_no_id_then_the_batch_is_refused_and_the_entry_named(
    service: Service, operation: str
) -> None:
    url = await service.queue()
    entries = [{"Id": "1"}, {"MessageBody": "x", "ReceiptHandle": "x"}]

    refused = await service.refusal(operation, QueueUrl=url, Entries=entries)

    assert refused.query_code == "MissingParameter"
    assert (
        refused.message == f"The request must contain the parameter {operation}RequestEntry.2.Id."
    )

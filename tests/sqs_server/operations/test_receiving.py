"""ReceiveMessage."""

import asyncio
from typing import Any

import attrs
import pytest

from .harness import Service

_ATTRIBUTES = {
    name: {"DataType": "String", "StringValue": value}
    for name, value in {"Help.Me": "Me", "Hello": "There", "General": "Kenobi"}.items()
}


async def test_when_nothing_is_asked_for_then_a_message_shows_only_itself(
    service: Service,
) -> None:
    """R44."""
    url = await service.queue()
    sent = await service.send(url, "msg", MessageAttributes=_ATTRIBUTES)

    [message] = await service.receive(url)

    assert set(message) == {"MessageId", "ReceiptHandle", "MD5OfBody", "Body"}
    assert (message["MessageId"], message["Body"]) == (sent["MessageId"], "msg")
    assert message["MD5OfBody"] == sent["MD5OfMessageBody"]


async def test_when_the_queue_is_empty_then_the_answer_has_no_list(service: Service) -> None:
    """R44."""
    url = await service.queue()

    assert await service.call("ReceiveMessage", QueueUrl=url) == {}


@pytest.mark.parametrize(
    ("names", "digest"),
    [
        (["All"], "4c360f3fdafd970e05fae2f149d997f5"),
        (["Hello", "General"], "fca026605781cb4126a1e9044df24232"),
        (["Foo", "Hello"], "a311262e065454b75da111d535b8dacd"),
        (["Hel.*"], "83fee93c1bcd8b9a5a923ffacdc636c7"),
        (["Foo", "Help"], None),
    ],
)
async def test_when_attributes_are_chosen_then_the_digest_is_of_those_that_are_shown(
    service: Service, names: list[str], digest: str | None
) -> None:
    """R44."""
    url = await service.queue()
    await service.send(url, "msg", MessageAttributes=_ATTRIBUTES)

    [message] = await service.receive(url, MessageAttributeNames=names)

    assert message.get("MD5OfMessageAttributes") == digest
    assert ("MessageAttributes" in message) is (digest is not None)


async def test_when_all_system_attributes_are_asked_for_then_a_standard_message_has_four(
    service: Service,
) -> None:
    """R44."""
    url = await service.queue()
    await service.send(url)
    await service.clock.advance(1)

    [message] = await service.receive(url, AttributeNames=["All"])

    attributes = message["Attributes"]
    assert set(attributes) == {
        "SenderId",
        "SentTimestamp",
        "ApproximateReceiveCount",
        "ApproximateFirstReceiveTimestamp",
    }
    assert attributes["SenderId"] == "AKIDEXAMPLE"
    assert attributes["ApproximateReceiveCount"] == "1"
    taken_ms = int(attributes["ApproximateFirstReceiveTimestamp"])
    assert taken_ms - int(attributes["SentTimestamp"]) == 1_000


async def test_when_a_fifo_message_is_received_then_its_ids_are_shown(service: Service) -> None:
    """R44."""
    url = await service.queue("orders.fifo")
    sent = await service.send(url, MessageGroupId="g", MessageDeduplicationId="d")

    [message] = await service.receive(
        url,
        MessageSystemAttributeNames=["MessageGroupId", "MessageDeduplicationId", "SequenceNumber"],
    )

    assert message["Attributes"] == {
        "MessageGroupId": "g",
        "MessageDeduplicationId": "d",
        "SequenceNumber": sent["SequenceNumber"],
    }


async def test_when_a_name_does_not_apply_then_it_is_left_out_and_an_unknown_one_refused(
    service: Service,
) -> None:
    """R44."""
    url = await service.queue()
    await service.send(url)

    [message] = await service.receive(url, AttributeNames=["SenderId", "SequenceNumber"])
    refused = await service.refusal("ReceiveMessage", QueueUrl=url, AttributeNames=["Nope"])

    assert set(message["Attributes"]) == {"SenderId"}
    assert (refused.code, refused.message) == ("InvalidAttributeName", "Unknown Attribute Nope.")


@pytest.mark.parametrize(("is_json", "count"), [(True, 4), (False, 1)])
async def test_when_both_names_of_the_parameter_are_used_then_the_protocol_decides(
    service: Service, is_json: bool, count: int
) -> None:
    """R44."""
    url = await service.queue()
    await service.send(url)

    [message] = await attrs.evolve(service, is_json=is_json).receive(
        url, AttributeNames=["SenderId"], MessageSystemAttributeNames=["All"]
    )

    assert len(message["Attributes"]) == count


async def test_when_a_trace_header_was_sent_then_it_is_received(service: Service) -> None:
    """R44."""
    url = await service.queue()
    await service.send(
        url,
        MessageSystemAttributes={"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}},
    )

    [message] = await service.receive(url, AttributeNames=["AWSTraceHeader"])

    assert message["Attributes"] == {"AWSTraceHeader": "Root=1"}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"MaxNumberOfMessages": 11},
            "Value 11 for parameter MaxNumberOfMessages is invalid. "
            "Reason: Must be between 1 and 10, if provided.",
        ),
        (
            {"MaxNumberOfMessages": 0},
            "Value 0 for parameter MaxNumberOfMessages is invalid. "
            "Reason: Must be between 1 and 10, if provided.",
        ),
        (
            {"WaitTimeSeconds": 21},
            "Value 21 for parameter WaitTimeSeconds is invalid. "
            "Reason: Must be >= 0 and <= 20, if provided.",
        ),
        (
            {"WaitTimeSeconds": -1},
            "Value -1 for parameter WaitTimeSeconds is invalid. "
            "Reason: Must be >= 0 and <= 20, if provided.",
        ),
        (
            {"VisibilityTimeout": 43_201},
            "Value 43201 for parameter VisibilityTimeout is invalid. "
            "Reason: Must be >= 0 and <= 43200, if provided.",
        ),
    ],
)
async def test_when_a_receive_asks_for_too_much_then_it_is_refused_in_aws_words(
    service: Service, parameters: dict[str, Any], message: str
) -> None:
    """R44."""
    url = await service.queue()

    refused = await service.refusal("ReceiveMessage", QueueUrl=url, **parameters)

    assert (refused.query_code, refused.message) == ("InvalidParameterValue", message)


async def test_when_a_receive_sets_no_timeout_then_the_queue_s_own_hides_the_message(
    service: Service,
) -> None:
    """R44."""
    url = await service.queue(VisibilityTimeout="5")
    await service.send(url)

    assert len(await service.receive(url, VisibilityTimeout=0)) == 1
    assert len(await service.receive(url)) == 1
    assert await service.receive(url) == []
    await service.clock.advance(5)
    assert len(await service.receive(url)) == 1


async def test_when_the_queue_waits_then_a_receive_without_a_wait_of_its_own_does_too(
    service: Service,
) -> None:
    """R44."""
    url = await service.queue(ReceiveMessageWaitTimeSeconds="10")

    waiting = asyncio.create_task(service.receive(url), name="receive")
    await service.clock.advance(1)
    await service.send(url, "late")

    assert [message["Body"] for message in await waiting] == ["late"]
    assert await service.receive(url, WaitTimeSeconds=0) == []

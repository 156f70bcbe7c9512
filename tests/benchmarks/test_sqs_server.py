"""The stand-in for SQS that benchmarks run on, seen through boto3."""

import asyncio
import hashlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.sqs_rig import REGION, Rig, sqs_server
from benchmarks.sqs_server.service import Service

boto3 = pytest.importorskip("boto3")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with sqs_server() as address:
        yield address


@pytest.fixture
def sqs(endpoint: str) -> Iterator[Any]:
    client = boto3.client(
        "sqs",
        region_name=REGION,
        endpoint_url=endpoint,
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    yield client
    client.close()


@pytest.fixture
def queue_url(sqs: Any, request: pytest.FixtureRequest) -> str:
    name = hashlib.sha256(request.node.name.encode()).hexdigest()[:40]
    url: str = sqs.create_queue(QueueName=name)["QueueUrl"]
    return url


def received(sqs: Any, queue_url: str, **request: Any) -> list[dict[str, Any]]:
    reply = sqs.receive_message(QueueUrl=queue_url, MaxNumberOfMessages=10, **request)
    messages: list[dict[str, Any]] = reply.get("Messages", [])
    return messages


def test_when_a_message_is_sent_then_it_is_received_as_it_was(sqs: Any, queue_url: str) -> None:
    attributes = {
        "kind": {"DataType": "String", "StringValue": "größe"},
        "blob": {"DataType": "Binary", "BinaryValue": b"\x00\x01"},
    }

    sent = sqs.send_message(QueueUrl=queue_url, MessageBody="hällo", MessageAttributes=attributes)
    [message] = received(sqs, queue_url, MessageAttributeNames=["All"], AttributeNames=["All"])

    assert message["Body"] == "hällo"
    assert message["MessageId"] == sent["MessageId"]
    assert message["MD5OfBody"] == hashlib.md5("hällo".encode()).hexdigest()
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert message["MessageAttributes"] == attributes
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    assert int(message["Attributes"]["SentTimestamp"]) > 0


def test_when_no_attribute_is_asked_for_then_none_comes(sqs: Any, queue_url: str) -> None:
    attributes = {"kind": {"DataType": "String", "StringValue": "a"}}
    sqs.send_message(QueueUrl=queue_url, MessageBody="x", MessageAttributes=attributes)

    [message] = received(sqs, queue_url)

    assert not {"Attributes", "MessageAttributes"} & set(message)


def test_when_all_are_deleted_then_the_queue_is_empty(sqs: Any, queue_url: str) -> None:
    # given fifteen messages, sent in two batches
    for start, end in ((0, 10), (10, 15)):
        entries = [{"Id": str(each), "MessageBody": str(each)} for each in range(start, end)]
        assert len(sqs.send_message_batch(QueueUrl=queue_url, Entries=entries)["Successful"])

    # when
    bodies = []
    while messages := received(sqs, queue_url):
        assert len(messages) <= 10
        bodies += [message["Body"] for message in messages]
        entries = [
            {"Id": str(at), "ReceiptHandle": message["ReceiptHandle"]}
            for at, message in enumerate(messages)
        ]
        reply = sqs.delete_message_batch(QueueUrl=queue_url, Entries=entries)
        assert [each["Id"] for each in reply["Successful"]] == [each["Id"] for each in entries]

    # then
    assert sorted(map(int, bodies)) == list(range(15))
    assert counts(sqs, queue_url) == (0, 0, 0)


def counts(sqs: Any, queue_url: str) -> tuple[int, int, int]:
    found = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["All"])["Attributes"]
    return (
        int(found["ApproximateNumberOfMessages"]),
        int(found["ApproximateNumberOfMessagesNotVisible"]),
        int(found["ApproximateNumberOfMessagesDelayed"]),
    )


def test_when_a_message_comes_during_a_long_poll_then_the_poll_ends(
    sqs: Any, queue_url: str
) -> None:
    found: list[dict[str, Any]] = []
    poller = threading.Thread(
        target=lambda: found.extend(received(sqs, queue_url, WaitTimeSeconds=15))
    )

    poller.start()
    sqs.send_message(QueueUrl=queue_url, MessageBody="late")
    poller.join()

    assert [message["Body"] for message in found] == ["late"]


def test_when_nothing_comes_then_a_long_poll_ends_empty(sqs: Any, queue_url: str) -> None:
    assert received(sqs, queue_url, WaitTimeSeconds=1) == []


def test_a_received_message_is_hidden_until_it_is_shown_again(sqs: Any, queue_url: str) -> None:
    # given
    sqs.send_message(QueueUrl=queue_url, MessageBody="x")
    [message] = received(sqs, queue_url)
    assert received(sqs, queue_url) == []
    assert counts(sqs, queue_url) == (0, 1, 0)

    # when
    sqs.change_message_visibility(
        QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
    )

    # then
    [again] = received(sqs, queue_url, AttributeNames=["ApproximateReceiveCount"])
    assert again["Attributes"] == {"ApproximateReceiveCount": "2"}
    assert again["ReceiptHandle"] != message["ReceiptHandle"]


def test_when_the_visibility_timeout_ends_then_a_waiting_poll_gets_the_message(
    sqs: Any, queue_url: str
) -> None:
    sqs.send_message(QueueUrl=queue_url, MessageBody="x")
    [message] = received(sqs, queue_url, VisibilityTimeout=1)

    [again] = received(sqs, queue_url, WaitTimeSeconds=15)

    assert again["MessageId"] == message["MessageId"]


def test_a_delayed_message_comes_after_its_delay(sqs: Any, queue_url: str) -> None:
    sqs.send_message(QueueUrl=queue_url, MessageBody="x", DelaySeconds=1)
    assert counts(sqs, queue_url) == (0, 0, 1)

    assert [each["Body"] for each in received(sqs, queue_url, WaitTimeSeconds=15)] == ["x"]


def test_when_a_queue_does_not_exist_then_the_sdk_says_so(sqs: Any) -> None:
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.get_queue_url(QueueName="nowhere")


def test_when_a_receipt_is_malformed_then_its_entry_alone_fails(sqs: Any, queue_url: str) -> None:
    sqs.send_message(QueueUrl=queue_url, MessageBody="x")
    [message] = received(sqs, queue_url)
    entries = [
        {"Id": "bad", "ReceiptHandle": "nonsense"},
        {"Id": "good", "ReceiptHandle": message["ReceiptHandle"]},
    ]

    reply = sqs.delete_message_batch(QueueUrl=queue_url, Entries=entries)

    assert [(each["Id"], each["Code"]) for each in reply["Failed"]] == [
        ("bad", "ReceiptHandleIsInvalid")
    ]
    assert [each["Id"] for each in reply["Successful"]] == ["good"]


def test_when_a_queue_is_purged_then_nothing_is_left(sqs: Any, queue_url: str) -> None:
    sqs.send_message(QueueUrl=queue_url, MessageBody="x")

    sqs.purge_queue(QueueUrl=queue_url)

    assert counts(sqs, queue_url) == (0, 0, 0)


def test_a_measurement_counts_calls_from_the_release_to_the_last_delete() -> None:
    # given a contender that polls for messages that are held back
    with sqs_server() as endpoint:
        rig = Rig(endpoint, latency_ms=1.0)
        rig.send(25)
        client = boto3.client("sqs", region_name=REGION, endpoint_url=endpoint)
        consumer = threading.Thread(target=consume, args=(client, rig.queue_url, 25))
        consumer.start()

        # when
        reading = rig.measure(25)

        # then
        consumer.join()
        client.close()
        rig.close()
    # The poll that waited for the release was made before it.
    assert reading.calls == {"receivemessage": 2, "deletemessage": 25}
    assert reading.calls_per_thousand == 1080


def consume(sqs: Any, queue_url: str, count: int) -> None:
    while count:
        for message in received(sqs, queue_url, WaitTimeSeconds=15):
            sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])
            count -= 1


async def test_when_a_poll_is_abandoned_then_it_takes_no_message() -> None:
    # given a receive that waits, and whose client goes away
    service = Service("http://127.0.0.1", asyncio.get_running_loop())
    replies: list[Any] = []
    service.call("createqueue", {"QueueName": "q"}, replies.append)
    url = replies[0]["QueueUrl"]
    poll = service.call("receivemessage", {"QueueUrl": url, "WaitTimeSeconds": 20}, replies.append)
    assert poll is not None
    service.abandon(poll)

    # when
    service.call("sendmessage", {"QueueUrl": url, "MessageBody": "x"}, replies.append)
    service.call("receivemessage", {"QueueUrl": url}, replies.append)

    # then
    assert [each["Body"] for each in replies[-1]["Messages"]] == ["x"]
    assert len(replies) == 3

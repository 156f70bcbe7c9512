"""The stand-ins that contenders run on, seen through boto3: what they do, and what they count."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.contenders.s3 import Rig as S3Rig, s3_rig, unfinished
from benchmarks.contenders.s3_designs import BUCKET
from benchmarks.contenders.sqs_rig import REGION, Rig, sqs_server

pytestmark = pytest.mark.slow
boto3 = pytest.importorskip("boto3")
ClientError = pytest.importorskip("botocore.exceptions").ClientError
CREDENTIALS = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}


# SQS.


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


def received(sqs: Any, queue_url: str, **request: Any) -> list[dict[str, Any]]:
    reply = sqs.receive_message(QueueUrl=queue_url, MaxNumberOfMessages=10, **request)
    messages: list[dict[str, Any]] = reply.get("Messages", [])
    return messages


@pytest.fixture
def sqs() -> Iterator[Any]:
    with sqs_server() as endpoint:
        client = boto3.client("sqs", region_name=REGION, endpoint_url=endpoint, **CREDENTIALS)
        yield client
        client.close()


def test_a_message_is_received_as_it_was_sent_and_hidden_until_its_visibility_ends(
    sqs: Any,
) -> None:
    queue_url = sqs.create_queue(QueueName="q")["QueueUrl"]
    attributes = {
        "kind": {"DataType": "String", "StringValue": "größe"},
        "blob": {"DataType": "Binary", "BinaryValue": b"\x00\x01"},
    }

    sent = sqs.send_message(QueueUrl=queue_url, MessageBody="hällo", MessageAttributes=attributes)
    wanted = {"MessageAttributeNames": ["All"], "AttributeNames": ["All"], "VisibilityTimeout": 1}
    [message] = received(sqs, queue_url, **wanted)
    hidden = received(sqs, queue_url)
    [again] = received(sqs, queue_url, WaitTimeSeconds=15)

    assert message["Body"] == "hällo"
    assert message["MessageId"] == again["MessageId"] == sent["MessageId"]
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert message["MessageAttributes"] == attributes
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    assert hidden == []
    assert not {"Attributes", "MessageAttributes"} & set(again)


def test_when_a_receipt_is_malformed_then_its_entry_alone_fails(sqs: Any) -> None:
    queue_url = sqs.create_queue(QueueName="q")["QueueUrl"]
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


# S3.


@pytest.fixture
def rig() -> Iterator[S3Rig]:
    with s3_rig() as rig:
        rig.start(latency_ms=0.0)
        yield rig


@pytest.fixture
def s3(rig: S3Rig) -> Iterator[Any]:
    client = boto3.client("s3", region_name=REGION, endpoint_url=rig.endpoint, **CREDENTIALS)
    yield client
    client.close()


def put(s3: Any, key: str, body: bytes = b"x", **conditions: str) -> str:
    etag: str = s3.put_object(Bucket=BUCKET, Key=key, Body=body, **conditions)["ETag"]
    return etag


def refusal(call: Any, *args: Any, **request: Any) -> tuple[str, int]:
    with pytest.raises(ClientError) as caught:
        call(*args, **request)
    reply = caught.value.response
    return reply["Error"]["Code"], reply["ResponseMetadata"]["HTTPStatusCode"]


def test_objects_are_read_as_they_were_and_listed_in_order_page_by_page(s3: Any) -> None:
    body = bytes(range(256)) * 1000
    for number in (3, 1, 2):
        put(s3, f"p/größe &+.{number}", body)
    put(s3, "q/1")

    found = s3.get_object(Bucket=BUCKET, Key="p/größe &+.1")
    first = s3.list_objects_v2(Bucket=BUCKET, Prefix="p/", MaxKeys=2)
    token = first["NextContinuationToken"]
    second = s3.list_objects_v2(Bucket=BUCKET, Prefix="p/", ContinuationToken=token)

    assert found["Body"].read() == body
    assert found["ETag"] == f'"{hashlib.md5(body).hexdigest()}"'
    assert [each["Key"][-1] for each in first["Contents"]] == ["1", "2"]
    assert [each["Key"][-1] for each in second["Contents"]] == ["3"]
    assert (first["IsTruncated"], second["IsTruncated"]) == (True, False)


def test_when_an_object_has_changed_then_a_write_over_the_old_version_is_refused(s3: Any) -> None:
    first = put(s3, "k", b"1", IfNoneMatch="*")
    second = put(s3, "k", b"2", IfMatch=first)

    assert refusal(put, s3, "k", IfNoneMatch="*") == ("PreconditionFailed", 412)
    assert refusal(put, s3, "k", b"3", IfMatch=first) == ("PreconditionFailed", 412)
    assert refusal(put, s3, "gone", b"3", IfMatch=first) == ("NoSuchKey", 404)
    assert refusal(s3.get_object, Bucket=BUCKET, Key="k", IfNoneMatch=second)[1] == 304


def test_requests_are_counted_as_they_are_billed(s3: Any, rig: S3Rig) -> None:
    put(s3, "k")
    refusal(put, s3, "k", IfNoneMatch="*")
    s3.head_object(Bucket=BUCKET, Key="k")
    s3.list_objects_v2(Bucket=BUCKET)
    s3.delete_object(Bucket=BUCKET, Key="k")

    assert rig.counts() == {"put": 2, "get": 1, "list": 1, "delete": 1}
    assert rig.sizes() == {}
    rig.start(latency_ms=1.0)
    assert rig.counts() == {}


def test_a_message_that_is_not_acked_is_found_among_the_objects() -> None:
    done = {"queues/ticks/messages/7-2": 100, "queues/ticks/pending/7.0/lease.json": 0}
    second = {"queues/ticks/pending/7.1/lease.json": 0}

    assert unfinished(done) == ["1 of messages/7-2"]
    assert unfinished(done | second) == []
    assert unfinished({"queues/ticks/segments/1": 5}) == ["segments/1"]

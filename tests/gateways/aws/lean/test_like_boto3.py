"""What goes over the wire, and what comes back from it, is what boto3 makes of the same call."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateways._aws.sdk_transport import Reply
from gateways._aws.settings import TransportKind
from pump.errors import PumpError

from ..conftest import Connect
from ..fake_aws import Answer, FakeAws, Seen, query_refusal, refusal

QUEUE = "https://sqs.eu-west-1.amazonaws.com/123456789012/orders"
OBJECT = {"Bucket": "bucket", "Key": "a b/ü+~*'(c)&?#%=:@,;!$.json"}
# Who asks and when; and what an SDK says of itself.
_NOT_COMPARED = {
    "accept-encoding",
    "amz-sdk-invocation-id",
    "amz-sdk-request",
    "authorization",
    "content-length",
    "expect",
    "host",
    "user-agent",
    "x-amz-date",
}

SQS_CALLS: list[tuple[str, dict[str, Any]]] = [
    ("send_message", {"QueueUrl": QUEUE, "MessageBody": "hällo \u2028 \x7f", "DelaySeconds": 3}),
    (
        "send_message_batch",
        {
            "QueueUrl": QUEUE,
            "Entries": [
                {
                    "Id": "0",
                    "MessageBody": "{}",
                    "MessageGroupId": "g",
                    "MessageAttributes": {
                        "b": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
                        "s": {"DataType": "String", "StringValue": "ü"},
                    },
                }
            ],
        },
    ),
    (
        "receive_message",
        {"QueueUrl": QUEUE, "MaxNumberOfMessages": 10, "MessageAttributeNames": ["All"]},
    ),
    ("delete_message", {"QueueUrl": QUEUE, "ReceiptHandle": "r"}),
    (
        "delete_message_batch",
        {"QueueUrl": QUEUE, "Entries": [{"Id": "0", "ReceiptHandle": "r"}]},
    ),
    (
        "change_message_visibility",
        {"QueueUrl": QUEUE, "ReceiptHandle": "r", "VisibilityTimeout": 0},
    ),
    (
        "change_message_visibility_batch",
        {
            "QueueUrl": QUEUE,
            "Entries": [{"Id": "0", "ReceiptHandle": "r", "VisibilityTimeout": 30}],
        },
    ),
    ("get_queue_url", {"QueueName": "orders"}),
    ("get_queue_attributes", {"QueueUrl": QUEUE, "AttributeNames": ["All"]}),
    ("set_queue_attributes", {"QueueUrl": QUEUE, "Attributes": {"VisibilityTimeout": "30"}}),
    ("create_queue", {"QueueName": "orders", "Attributes": {}, "tags": {"team": "ü"}}),
    ("list_queues", {"MaxResults": 1}),
    # Not performed here: the SDK's own.
    ("purge_queue", {"QueueUrl": QUEUE}),
    ("send_message", {"QueueUrl": QUEUE, "MessageBody": "x", "MessageGroupId": None}),
    ("send_message", {"QueueUrl": QUEUE, "MessageBody": "\ud800"}),
]
S3_CALLS: list[tuple[str, dict[str, Any]]] = [
    ("put_object", {**OBJECT, "Body": b"xyz"}),
    ("put_object", {**OBJECT, "Body": b"", "IfNoneMatch": "*"}),
    ("put_object", {**OBJECT, "Body": b"large" * 400_000}),
    ("put_object", {**OBJECT, "Body": b"\x00", "IfMatch": '"e"', "ContentType": "a/b; c=d"}),
    ("put_object", {"Bucket": "dotted.bucket", "Key": "a//b/../c/./d", "Body": b"x"}),
    ("get_object", OBJECT),
    ("get_object", {**OBJECT, "IfNoneMatch": '"e"'}),
    ("head_object", OBJECT),
    ("delete_object", OBJECT),
    (
        "delete_objects",
        {"Bucket": "bucket", "Delete": {"Objects": [{"Key": "<&>\r\n\t ü"}, {"Key": "b"}]}},
    ),
    ("delete_objects", {"Bucket": "bucket", "Delete": {"Objects": [{"Key": "a"}], "Quiet": True}}),
    ("list_objects_v2", {"Bucket": "bucket"}),
    (
        "list_objects_v2",
        {"Bucket": "bucket", "Prefix": "a b/ü&=+", "StartAfter": "é", "MaxKeys": 7},
    ),
    # Not performed here: the SDK's own.
    ("put_object", {**OBJECT, "Body": b"x", "Metadata": {"a": "b"}}),
    ("get_object", {**OBJECT, "Range": "bytes=0-1"}),
    ("get_bucket_versioning", {"Bucket": "bucket"}),
]


async def _both(
    aws: FakeAws,
    connect: Connect,
    call: tuple[str, str, dict[str, Any]],
    *answers: Answer,
    max_attempts: int = 1,
) -> tuple[Any, Any]:
    """What boto3 and what the lean transport made of a call: a reply, or an error."""
    results: list[Reply | PumpError] = []
    for kind in (TransportKind.BOTO3, TransportKind.LEAN):
        aws.script.extend(answers)
        try:
            transport = connect(transport=kind, max_attempts=max_attempts)
            results.append(await transport.call(*call, target="it"))
        except PumpError as error:
            results.append(error)
    theirs, ours = results
    return theirs, ours


def _compared(seen: Seen) -> dict[str, str]:
    return {name: text for name, text in seen.headers.items() if name not in _NOT_COMPARED}


@pytest.mark.parametrize(("operation", "request_"), SQS_CALLS)
async def test_when_sqs_is_asked_then_the_request_is_the_sdks(
    aws: FakeAws, connect: Connect, operation: str, request_: dict[str, Any]
) -> None:
    """R34."""
    await _both(aws, connect, ("sqs", operation, request_))

    theirs, ours = aws.seen
    assert (ours.method, ours.path) == (theirs.method, theirs.path)
    assert json.loads(ours.body) == json.loads(theirs.body)
    assert _compared(ours) == _compared(theirs)
    assert _signed_names(ours) == _signed_names(theirs)


@pytest.mark.parametrize(("operation", "request_"), S3_CALLS)
async def test_when_s3_is_asked_then_the_request_is_the_sdks(
    aws: FakeAws, connect: Connect, operation: str, request_: dict[str, Any]
) -> None:
    """R34: bodies, conditions, checksums, and keys with anything in them."""
    aws.always = Answer(body=b"<Result/>" if "object" not in operation[-7:] else b"")

    await _both(aws, connect, ("s3", operation, request_))

    theirs, ours = aws.seen
    (path, _, query), (their_path, _, their_query) = (
        seen.path.partition("?") for seen in (ours, theirs)
    )
    assert (ours.method, path) == (theirs.method, their_path)
    assert sorted(query.split("&")) == sorted(their_query.split("&"))
    assert ours.body == theirs.body
    assert ours.headers.get("content-length") == theirs.headers.get("content-length")
    assert _compared(ours) == _compared(theirs)
    assert _signed_names(ours) == _signed_names(theirs)


def _signed_names(seen: Seen) -> str:
    return seen.headers["authorization"].split("SignedHeaders=")[1].split(",")[0]


@pytest.mark.parametrize("operation", ["put_object", "get_object"])
async def test_when_checksums_are_to_be_rare_then_they_are_as_the_sdks(
    aws: FakeAws, connect: Connect, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    """R34: stores that imitate S3 do not all know them, and AWS's setting for that counts."""
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    monkeypatch.setenv("AWS_RESPONSE_CHECKSUM_VALIDATION", "when_required")

    await _both(aws, connect, ("s3", operation, OBJECT))

    theirs, ours = aws.seen
    assert _compared(ours) == _compared(theirs)
    assert not any("checksum" in name for name in ours.headers)


_DATE = {"last-modified": "Wed, 21 Oct 2015 07:28:00 GMT", "date": "Wed, 21 Oct 2015 07:28:00 GMT"}
_IDS = {"x-amz-request-id": "r", "x-amz-id-2": "h"}
LISTING = b"""<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
  <Name>bucket</Name><Prefix>p%2F+</Prefix><StartAfter>a%20b</StartAfter><KeyCount>2</KeyCount>
  <MaxKeys>10</MaxKeys><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>
  <NextContinuationToken>t/+=</NextContinuationToken>
  <Contents><Key>a%20b+c%2B%0A</Key><LastModified>2009-10-12T17:50:30.000Z</LastModified>
    <ETag>&quot;fba9&quot;</ETag><Size>5</Size><StorageClass>STANDARD</StorageClass></Contents>
  <Contents><Key>%C3%BC</Key><LastModified>2009-10-12T17:50:30Z</LastModified>
    <ETag>"e"</ETag><Size>0</Size></Contents>
</ListBucketResult>"""
DELETION = b"""<DeleteResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
  <Deleted><Key>a</Key><VersionId>v</VersionId><DeleteMarker>true</DeleteMarker></Deleted>
  <Error><Key>b</Key><Code>AccessDenied</Code><Message>no</Message></Error>
</DeleteResult>"""
BINARY = {"DataType": "Binary", "BinaryValue": "AP8="}
MESSAGES = {
    "Messages": [
        {
            "MessageId": "m",
            "Body": "ü",
            "Attributes": {"SentTimestamp": "1"},
            "MessageAttributes": {"a": BINARY, "b": {"DataType": "String", "StringValue": "x"}},
        }
    ]
}

REPLIES: list[tuple[str, str, dict[str, Any], Answer]] = [
    ("sqs", "receive_message", {"QueueUrl": QUEUE}, Answer(body=json.dumps(MESSAGES).encode())),
    ("sqs", "receive_message", {"QueueUrl": QUEUE}, Answer(headers={"x-amzn-requestid": "r"})),
    ("sqs", "delete_message", {"QueueUrl": QUEUE, "ReceiptHandle": "r"}, Answer(body=b"")),
    ("s3", "put_object", OBJECT, Answer(body=b"", headers={"ETag": '"1"', **_IDS})),
    (
        "s3",
        "put_object",
        OBJECT,
        Answer(
            body=b"",
            headers={"etag": '"1"', "x-amz-version-id": "v", "x-amz-server-side-encryption": "AES"},
        ),
    ),
    (
        "s3",
        "get_object",
        OBJECT,
        Answer(
            body=b"abc",
            headers={**_DATE, **_IDS, "etag": '"1"', "x-amz-meta-a": "b", "content-type": "a/b"},
        ),
    ),
    ("s3", "head_object", OBJECT, Answer(body=b"", headers={**_DATE, "etag": '"1"'})),
    ("s3", "delete_object", OBJECT, Answer(status=204, body=b"")),
    ("s3", "list_objects_v2", {"Bucket": "bucket"}, Answer(body=LISTING, headers=_IDS)),
    (
        "s3",
        "list_objects_v2",
        {"Bucket": "bucket"},
        Answer(body=b"<ListBucketResult><Name>bucket</Name></ListBucketResult>"),
    ),
    (
        "s3",
        "delete_objects",
        {"Bucket": "bucket", "Delete": {"Objects": [{"Key": "a"}]}},
        Answer(body=DELETION),
    ),
]


@pytest.mark.parametrize(
    ("service", "operation", "request_", "answer"),
    REPLIES,
    ids=[f"{at}-{case[1]}" for at, case in enumerate(REPLIES)],
)
async def test_when_aws_replies_then_the_reply_is_the_sdks(
    aws: FakeAws,
    connect: Connect,
    service: str,
    operation: str,
    request_: dict[str, Any],
    answer: Answer,
) -> None:
    """R34: the same fields of the same types."""
    call = (service, operation, request_)

    theirs, ours = await _both(aws, connect, call, answer, max_attempts=2)

    assert ours == theirs


_ERRORS = [
    refusal(400, "QueueDoesNotExist", x_amzn_query_error="AWS.SimpleQueueService.NonExistentQueue"),
    refusal(400, "InvalidParameterValue", "the receipt handle has expired"),
    refusal(403, "AccessDeniedException"),
    refusal(400, "ThrottlingException", retry_after="3"),
    refusal(503, "ServiceUnavailable"),
    Answer(status=502, body=b"<html>bad gateway</html>"),
    Answer(status=400, body=b""),
    Answer(body=b"no json"),
]
_S3_ERRORS = [
    query_refusal(404, "NoSuchKey"),
    query_refusal(404, "NoSuchBucket"),
    query_refusal(412, "PreconditionFailed"),
    query_refusal(409, "ConditionalRequestConflict"),
    query_refusal(503, "SlowDown"),
    Answer(status=304, body=b"", headers={"etag": '"1"', **_DATE}),
    Answer(status=403, body=b""),
    Answer(status=500, body=b"<html>"),
    Answer(status=503, body=b""),
]


@pytest.mark.parametrize("answer", _ERRORS)
async def test_when_sqs_refuses_then_the_error_is_the_sdks(
    aws: FakeAws, connect: Connect, answer: Answer
) -> None:
    """R34, R51, R52."""
    call = ("sqs", "receive_message", {"QueueUrl": QUEUE})

    theirs, ours = await _both(aws, connect, call, answer)

    _check_same_error(theirs, ours)


@pytest.mark.parametrize("operation", ["get_object", "head_object", "put_object", "delete_object"])
@pytest.mark.parametrize("answer", _S3_ERRORS)
async def test_when_s3_refuses_then_the_error_is_the_sdks(
    aws: FakeAws, connect: Connect, operation: str, answer: Answer
) -> None:
    """R34, R51, R52: and what is known of the reply travels with it."""
    if operation == "head_object":
        answer = Answer(status=answer.status, body=b"", headers=answer.headers)

    theirs, ours = await _both(aws, connect, ("s3", operation, OBJECT), answer)

    _check_same_error(theirs, ours)


@pytest.mark.parametrize("operation", ["list_objects_v2", "delete_objects", "put_object"])
@pytest.mark.parametrize(
    "body",
    [b"<Error><Code>InternalError</Code><Message>m</Message></Error>", b"<ListBucketRes", b"no"],
)
async def test_when_s3_says_yes_and_means_no_then_it_is_the_sdks_error(
    aws: FakeAws, connect: Connect, operation: str, body: bytes
) -> None:
    """R51: a 200 that broke off or holds an error is no empty listing."""
    request: dict[str, Any] = {"Bucket": "bucket"}
    if operation == "delete_objects":
        request["Delete"] = {"Objects": [{"Key": "a"}]}
    if operation == "put_object":
        request["Key"] = "k"

    theirs, ours = await _both(aws, connect, ("s3", operation, request), Answer(body=body))

    _check_same_error(theirs, ours)


def _check_same_error(theirs: Any, ours: Any) -> None:
    assert isinstance(theirs, PumpError), theirs
    assert (type(ours), str(ours)) == (type(theirs), str(theirs))
    assert _metadata(ours) == _metadata(theirs)


def _metadata(error: PumpError) -> object:
    return getattr(error.__cause__, "response", {}).get("ResponseMetadata")

"""What the lean transport leaves to the SDK: whatever it is not sure of, and nothing is missing."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from gateways._aws.errors import RequestRefused, metadata_of
from gateways._aws.sdk_transport import Transport
from pump.errors import ConfigurationError, PumpError

from ..conftest import Connect
from ..fake_aws import Answer, FakeAws, Reset, query_refusal

OBJECT = {"Bucket": "bucket", "Key": "k"}
VERSION = {"Key": "k", "VersionId": "v"}
QUEUE = "http://127.0.0.1/123456789012/orders"


def _who(aws: FakeAws) -> list[str]:
    return [seen.headers["user-agent"].split("/")[0] for seen in aws.seen]


@pytest.mark.parametrize(
    ("service", "operation", "request_"),
    [
        ("sqs", "purge_queue", {"QueueUrl": QUEUE}),
        ("sqs", "send_message", {"QueueUrl": QUEUE, "MessageBody": "x", "MessageGroupId": None}),
        ("sns", "publish", {"TopicArn": "arn", "Message": "x"}),
        ("s3", "get_bucket_versioning", {"Bucket": "bucket"}),
        ("s3", "put_object", {**OBJECT, "Body": b"x", "ServerSideEncryption": "aws:kms"}),
        ("s3", "put_object", {**OBJECT, "Body": "text"}),
        ("s3", "delete_objects", {"Bucket": "bucket", "Delete": {"Objects": [VERSION]}}),
    ],
)
async def test_when_a_call_is_not_on_the_lists_then_boto3_performs_it(
    aws: FakeAws, connect: Connect, service: str, operation: str, request_: dict[str, Any]
) -> None:
    """R34."""
    if operation == "delete_objects":
        aws.always = Answer(body=b"<DeleteResult/>")

    assert await connect().call(service, operation, request_)

    assert _who(aws) == ["boto3"]


@pytest.mark.parametrize("operation", ["send_message_batch", "delete_message_batch"])
async def test_when_an_entry_has_a_field_that_does_not_exist_then_nothing_is_sent(
    aws: FakeAws, connect: Connect, operation: str
) -> None:
    """SQS would pass it over, and a message would be without its part."""
    request = {"QueueUrl": QUEUE, "Entries": [{"Id": "0", "MessageBoddy": "x"}]}

    with pytest.raises(RequestRefused):
        await connect().call("sqs", operation, request)

    assert aws.seen == []


def _moved(operation: str) -> Answer:
    if operation == "head_object":
        return Answer(status=400, body=b"", headers={"x-amz-bucket-region": "eu-central-1"})
    body = query_refusal(301, "PermanentRedirect").body
    return Answer(status=301, body=body, headers={"x-amz-bucket-region": "eu-central-1"})


@pytest.mark.parametrize("operation", ["get_object", "put_object", "head_object", "delete_object"])
async def test_when_a_bucket_is_in_another_region_then_boto3_follows_it_from_then_on(
    aws: FakeAws, connect: Connect, operation: str
) -> None:
    """R34: it asks for the region, signs for it, and remembers."""
    transport = connect()
    aws.script.extend([_moved(operation), _moved(operation)])

    first = await transport.call("s3", operation, OBJECT)
    await transport.call("s3", operation, OBJECT)
    await transport.call("s3", operation, {"Bucket": "another", "Key": "k"})

    assert first["ResponseMetadata"]["RetryAttempts"] == 2
    assert _who(aws) == ["lean", "boto3", "boto3", "boto3", "lean"]
    regions = [seen.headers["authorization"].split("/")[2] for seen in aws.seen]
    assert regions == ["eu-west-1", "eu-west-1", "eu-central-1", "eu-central-1", "eu-west-1"]


async def test_when_boto3_finds_no_other_place_then_the_bucket_is_not_left_to_it(
    aws: FakeAws, connect: Connect
) -> None:
    """S3 answers a HEAD whose token has expired as it answers one at the wrong place."""
    transport = connect()
    aws.script.extend([Answer(status=400, body=b"")] * 3)

    with pytest.raises(PumpError):
        await transport.call("s3", "head_object", OBJECT)
    await transport.call("s3", "head_object", OBJECT)

    assert _who(aws) == ["lean", "boto3", "boto3", "lean"]


async def test_when_the_right_place_refuses_then_every_try_is_counted(
    aws: FakeAws, connect: Connect
) -> None:
    """A refusal after a try that may have been a write is not to be believed at once."""
    aws.script.extend([_moved("put_object")] * 2 + [query_refusal(412, "PreconditionFailed")])

    with pytest.raises(RequestRefused) as caught:
        await _put(connect())

    assert metadata_of(caught.value)["RetryAttempts"] == 2


async def test_when_a_bucket_has_its_own_way_to_sign_then_boto3_performs_the_call(
    aws: FakeAws, connect: Connect
) -> None:
    """S3 Express signs with keys of a session that it gives."""
    transport = connect()
    session = (
        b"<R><Credentials><AccessKeyId>a</AccessKeyId><SecretAccessKey>b</SecretAccessKey>"
        b"<SessionToken>c</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration>"
        b"</Credentials></R>"
    )
    aws.script.append(Answer(body=session))

    request = {"Bucket": "bucket--euw1-az1--x-s3", "Key": "k", "Body": b"x"}
    await transport.call("s3", "put_object", request)

    assert _who(aws) == ["boto3", "boto3"]


async def test_when_a_write_meets_a_broken_connection_then_each_try_is_counted(
    aws: FakeAws, connect: Connect
) -> None:
    """A repetition that nobody knows of makes a conditional write refuse itself."""
    transport = connect(max_attempts=2)
    await _put(transport)
    aws.script.append(Reset())

    reply = await _put(transport)

    assert reply["ResponseMetadata"]["RetryAttempts"] == 1
    assert len(aws.seen) == 3


async def test_when_aiohttp_would_repeat_writes_by_itself_then_it_is_not_used(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R77: there is no setting for it, and a release may take away what does it now."""
    monkeypatch.setattr(aiohttp.ClientSession, "ATTRS", frozenset())

    with pytest.raises(ConfigurationError, match=r"aiohttp.*transport='boto3'"):
        await connect().open()


async def _put(transport: Transport) -> dict[str, Any]:
    return await transport.call("s3", "put_object", {**OBJECT, "Body": b"x", "IfNoneMatch": "*"})

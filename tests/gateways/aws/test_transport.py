"""The transport, of every kind and over a real socket: calls, concurrency, the pool."""

from __future__ import annotations

import asyncio
import json

import pytest

from gateways._aws.errors import ObjectNotFound, RequestRefused
from gateways._aws.sdk_transport import Polling, Reply, Transport
from gateways._aws.settings import TransportKind
from pump.errors import ConnectionFailed, PoolExhausted, QueueNotFound
from pump.testing.virtual_clock import VirtualClock

from .conftest import Connect
from .fake_aws import Answer, FakeAws, Wait, query_refusal, refusal

URL = "http://127.0.0.1/123456789012/orders"


async def _receive(transport: Transport) -> Reply:
    request = {"QueueUrl": URL, "WaitTimeSeconds": 20}
    return await transport.call(
        "sqs", "receive_message", request, target="orders", polling=Polling(50, 0)
    )


async def _delete(transport: Transport) -> Reply:
    request = {"QueueUrl": URL, "ReceiptHandle": "handle"}
    return await transport.call("sqs", "delete_message", request, target="orders")


async def test_when_an_operation_is_called_then_its_reply_comes_back(
    aws: FakeAws, connect: Connect, kind: TransportKind
) -> None:
    """R34: one request, one reply, the same over every transport."""
    transport = connect()
    aws.script.append(Answer(body=b'{"QueueUrl": "http://queue"}'))

    reply = await transport.call("sqs", "get_queue_url", {"QueueName": "orders"}, target="orders")

    assert reply["QueueUrl"] == "http://queue"
    [seen] = aws.seen
    assert (seen.operation, json.loads(seen.body)) == ("GetQueueUrl", {"QueueName": "orders"})
    assert seen.headers["user-agent"].startswith(f"{kind.value}/")
    assert "pumphouse" in seen.headers["user-agent"]


@pytest.mark.usefixtures("cold_start")
async def test_when_a_batch_is_sent_then_the_body_is_what_was_asked(
    aws: FakeAws, connect: Connect
) -> None:
    """R34: without the SDK's own validation a request still arrives whole."""
    attribute = {"DataType": "Binary", "BinaryValue": b"\x00\xff"}
    entry = {"Id": "0", "MessageBody": "hällo", "MessageAttributes": {"pump": attribute}}

    await connect().call("sqs", "send_message_batch", {"QueueUrl": URL, "Entries": [entry]})

    [sent] = json.loads(aws.seen[0].body)["Entries"]
    assert sent["MessageBody"] == "hällo"
    assert sent["MessageAttributes"]["pump"]["BinaryValue"] == "AP8="


@pytest.mark.usefixtures("cold_start")
@pytest.mark.parametrize("service", ["sqs", "s3"])
async def test_when_a_request_is_large_then_it_arrives_whole_also_when_it_is_repeated(
    aws: FakeAws, connect: Connect, service: str
) -> None:
    """R34, R58: a full batch of JSON bodies is well over a mebibyte on the wire."""
    body = '{"n": 1}' * 200_000
    if service == "s3":
        operation, request = "put_object", {"Bucket": "b", "Key": "k", "Body": body.encode()}
    else:
        entry = {"Id": "0", "MessageBody": body}
        operation, request = "send_message_batch", {"QueueUrl": URL, "Entries": [entry]}
    aws.script.append(Answer(status=500))

    await connect(max_attempts=2).call(service, operation, request)

    first, second = (seen.body for seen in aws.seen)
    sent = second.decode() if service == "s3" else json.loads(second)["Entries"][0]["MessageBody"]
    assert sent == body
    assert first == second


async def test_when_a_reply_is_read_then_it_is_what_the_sdk_would_have_made_of_it(
    aws: FakeAws, connect: Connect
) -> None:
    """R34: bytes are bytes, what is null is not there, and the SDK's own part is."""
    binary = {"DataType": "Binary", "BinaryValue": "AP8="}
    text = {"DataType": "String", "StringValue": "hällo"}
    for attribute in (binary, text):
        message = {"Body": "b", "ReceiptHandle": "r", "MessageAttributes": {"a": attribute}}
        reply = {"Messages": [message], "Nothing": None}
        aws.script.append(Answer(body=json.dumps(reply).encode()))
    transport = connect()

    first, second = await _receive(transport), await _receive(transport)

    assert first["Messages"][0]["MessageAttributes"]["a"]["BinaryValue"] == b"\x00\xff"
    assert second["Messages"][0]["MessageAttributes"]["a"]["StringValue"] == "hällo"
    assert second["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert "Nothing" not in first
    assert "Nothing" not in second


async def test_when_a_poll_stays_unanswered_then_it_is_given_up(
    aws: FakeAws, connect: Connect
) -> None:
    """R51: a connection that died without a word must not stop the pump for ever."""
    aws.script.append(Wait())
    clock = VirtualClock()
    transport = connect(clock)
    polling = Polling(50, clock.now_s())
    await transport.open()

    request = {"QueueUrl": URL, "WaitTimeSeconds": 20}
    receiving = asyncio.create_task(
        transport.call("sqs", "receive_message", request, target="orders", polling=polling)
    )
    await aws.busy_with(1)
    await clock.advance(51)

    with pytest.raises(ConnectionFailed, match=r"orders.*no answer.*50 s"):
        await receiving


async def test_when_sns_is_called_then_the_query_protocol_works_as_well(
    aws: FakeAws, connect: Connect
) -> None:
    """R34."""
    result = b"<PublishResult><MessageId>m-1</MessageId></PublishResult>"
    aws.script.append(Answer(body=b"<PublishResponse>" + result + b"</PublishResponse>"))

    reply = await connect().call("sns", "publish", {"TopicArn": "arn", "Message": "hello"})

    assert reply["MessageId"] == "m-1"
    assert b"Action=Publish" in aws.seen[0].body


@pytest.mark.usefixtures("cold_start")
async def test_when_an_object_is_put_then_its_bucket_is_in_the_path(
    aws: FakeAws, connect: Connect
) -> None:
    """R34: an endpoint of one's own has no host name per bucket."""
    request = {"Bucket": "claims", "Key": "a/b", "Body": b"\x00\x01", "IfNoneMatch": "*"}
    transport = connect(endpoint_url=aws.url.replace("127.0.0.1", "localhost"))

    reply = await transport.call("s3", "put_object", request, target="claims/a/b")

    assert reply["ETag"] == '"1"'
    assert (aws.seen[0].method, aws.seen[0].path) == ("PUT", "/claims/a/b")
    assert aws.seen[0].headers["if-none-match"] == "*"
    assert b"\x00\x01" in aws.seen[0].body


async def test_when_an_object_is_got_then_its_body_is_bytes(aws: FakeAws, connect: Connect) -> None:
    """R34: not a stream of one SDK or the other; and its connection is free again."""
    transport = connect()
    bodies = [b"", b"x", bytes(range(256)) * 4_096]
    aws.script.extend(Answer(body=body) for body in bodies)

    for body in bodies:
        reply = await transport.call("s3", "get_object", {"Bucket": "claims", "Key": "k"})
        assert reply["Body"] == body

    assert aws.connection_count == 1


@pytest.mark.parametrize(
    ("answer", "service", "operation", "expected"),
    [
        (refusal(400, "QueueDoesNotExist"), "sqs", "get_queue_url", QueueNotFound),
        (query_refusal(404, "NotFound"), "sns", "get_topic_attributes", QueueNotFound),
        (query_refusal(404, "NoSuchKey"), "s3", "get_object", ObjectNotFound),
        (Answer(status=404, body=b""), "s3", "head_object", ObjectNotFound),
        (query_refusal(412, "PreconditionFailed"), "s3", "put_object", RequestRefused),
    ],
)
async def test_when_a_service_says_no_then_each_protocol_is_understood(
    aws: FakeAws,
    connect: Connect,
    answer: Answer,
    service: str,
    operation: str,
    expected: type[Exception],
) -> None:
    """R34: JSON, query and REST errors, over every transport."""
    aws.script.append(answer)
    request = {"Bucket": "claims", "Key": "k"} if service == "s3" else {"QueueName": "orders"}
    request = {"TopicArn": "arn"} if service == "sns" else request

    with pytest.raises(expected, match="that one"):
        await connect().call(service, operation, request, target="that one")

    assert len(aws.seen) == 1


async def test_when_an_operation_does_not_exist_then_the_refusal_keeps_the_cause(
    connect: Connect,
) -> None:
    with pytest.raises(RequestRefused) as caught:
        await connect().call("sqs", "recieve_message", {})

    assert isinstance(caught.value.__cause__, AttributeError)


async def test_when_a_field_does_not_exist_then_nothing_is_sent(
    aws: FakeAws, connect: Connect
) -> None:
    """R34: without the SDK's own validation a wrong name is still no silent loss."""
    transport = connect()

    for service, operation in (("sqs", "send_message"), ("sns", "publish"), ("s3", "put_object")):
        with pytest.raises(RequestRefused):
            await transport.call(service, operation, {"Bucket": "b", "Key": "k", "Boddy": "x"})

    assert aws.seen == []


async def test_when_it_is_opened_then_nothing_is_connected(aws: FakeAws, connect: Connect) -> None:
    """R31: no connection before the first call."""
    transport = connect()

    await asyncio.gather(transport.open(), transport.open())
    await transport.open()

    assert aws.connection_count == 0


async def test_when_a_hundred_call_at_once_then_all_are_answered_within_the_maximum(
    aws: FakeAws, connect: Connect
) -> None:
    """R53, R54: safe, no deadlock, the maximum respected, connections reused."""
    transport = connect(max_connections=8)
    release = asyncio.Event()
    aws.script.extend([Wait(release)] * 8)

    calls = [
        asyncio.create_task(_delete(transport) if turn % 2 else _receive(transport))
        for turn in range(100)
    ]
    await aws.busy_with(8)
    release.set()
    await asyncio.gather(*calls)

    assert len(aws.seen) == 100
    assert (aws.max_busy, aws.connection_count) == (8, 8)


async def test_when_calls_follow_each_other_then_they_share_one_connection(
    aws: FakeAws, connect: Connect
) -> None:
    """R54: an idle connection is reused."""
    transport = connect()

    for _ in range(5):
        await _delete(transport)

    assert (len(aws.seen), aws.connection_count) == (5, 1)


async def test_when_long_polls_are_all_waiting_then_a_delete_gets_through(
    aws: FakeAws, connect: Connect
) -> None:
    """R54: part of the connections is kept free of long polls."""
    transport = connect(max_connections=4)
    release = asyncio.Event()
    aws.script.extend([Wait(release), Wait(release)])
    polls = [asyncio.create_task(_receive(transport)) for _ in range(5)]
    await aws.busy_with(2)

    await _delete(transport)

    assert [seen.operation for seen in aws.seen] == ["ReceiveMessage"] * 2 + ["DeleteMessage"]
    release.set()
    await asyncio.gather(*polls)
    assert aws.max_busy <= 3


async def test_when_every_connection_is_busy_for_too_long_then_the_pool_is_exhausted(
    aws: FakeAws, connect: Connect
) -> None:
    """R54: graceful, and over as soon as a connection is free again."""
    clock = VirtualClock(thread_patience_s=0.01)
    transport = connect(clock, max_connections=2, pool_timeout_s=10.0)
    release = asyncio.Event()
    aws.script.extend([Wait(release), Wait(release)])
    busy = [asyncio.create_task(_delete(transport)) for _ in range(2)]
    await aws.busy_with(2)

    late = asyncio.create_task(_delete(transport))
    await clock.advance(10)
    with pytest.raises(PoolExhausted, match="orders"):
        await late

    release.set()
    await asyncio.gather(*busy)
    await _delete(transport)
    assert len(aws.seen) == 3


async def test_when_a_call_is_cancelled_then_its_connection_is_not_given_away_too_early(
    aws: FakeAws, connect: Connect, kind: TransportKind
) -> None:
    """R54, law 6: a task breaks the connection off, boto3's thread has to come back first."""
    transport = connect(max_connections=2)
    waiting = Wait()
    aws.script.extend([waiting])
    call = asyncio.create_task(_delete(transport))
    await aws.busy_with(1)

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    if kind is not TransportKind.BOTO3:
        await aws.connected_to(0)
    await asyncio.gather(*(_delete(transport) for _ in range(6)))

    assert aws.max_busy <= 2
    assert len(aws.seen) == 7
    waiting.release.set()
    await aws.busy_with(0)


async def test_when_cancelled_calls_still_hold_threads_then_the_pool_says_so(
    aws: FakeAws, connect: Connect, kind: TransportKind
) -> None:
    """R54: a call waits for a connection, never unseen for a thread."""
    clock = VirtualClock(thread_patience_s=0.01)
    transport = connect(clock, max_connections=2, pool_timeout_s=10.0)
    release = asyncio.Event()
    aws.script.extend([Wait(release), Wait(release)])
    calls = [asyncio.create_task(_delete(transport)) for _ in range(2)]
    await aws.busy_with(2)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)

    late = asyncio.create_task(_delete(transport))
    if kind is TransportKind.BOTO3:
        await clock.advance(10)
        with pytest.raises(PoolExhausted, match="orders"):
            await late
        release.set()
        await aws.busy_with(0)
        late = asyncio.create_task(_delete(transport))

    assert await late
    release.set()


async def test_when_the_first_caller_is_cancelled_then_the_others_are_served(
    aws: FakeAws, connect: Connect
) -> None:
    """R53: making the client belongs to nobody's call."""
    transport = connect()
    calls = [asyncio.create_task(_delete(transport)) for _ in range(3)]
    await asyncio.wait(calls, timeout=0)

    calls[0].cancel()

    replies = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(replies[0], asyncio.CancelledError)
    assert len(aws.seen) == 2


async def test_when_a_reply_is_no_json_then_the_call_fails_rather_than_being_empty(
    aws: FakeAws, connect: Connect
) -> None:
    """R51: the SDKs would take a proxy's page for an empty reply, and a send for done."""
    transport = connect()
    replies = (b"<html>Sign in</html>", b'{"Failed": [', b'{"MessageId": "\xff"}')
    aws.script.extend([Answer(body=body) for body in replies])

    for _ in replies:
        with pytest.raises(ConnectionFailed, match="not JSON"):
            await transport.call("sqs", "send_message", {"QueueUrl": URL, "MessageBody": "x"})

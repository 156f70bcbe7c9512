"""The fault proxy between both SDKs and LocalStack: what the client meets, what the server did."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aioboto3
import pytest
from botocore.config import Config
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    EndpointConnectionError,
    ReadTimeoutError,
)

from .aws_account import AwsAccount
from .fault_plan import (
    DROP_BEFORE,
    LOSE_RESPONSE,
    NO_FAULTS,
    SERVER_ERROR,
    THROTTLE,
    TRUNCATE,
    UNAVAILABLE,
    Fault,
    FaultKind,
    FaultPlan,
    delay,
)
from .fault_proxy import FaultProxy

pytestmark = pytest.mark.broker

Call = Callable[..., Awaitable[dict[str, Any]]]
ONCE: dict[str, Any] = {"retries": {"total_max_attempts": 1, "mode": "standard"}}
BOTH = pytest.mark.parametrize("sdk", ["boto3", "aioboto3"])
# aioboto3 reports a reset as a failure to connect, although the request may have arrived.
LOST = (ConnectionClosedError, EndpointConnectionError)
SESSION = aioboto3.Session()


@asynccontextmanager
async def client_of(
    sdk: str, account: AwsAccount, service: str, **options: Any
) -> AsyncIterator[Call]:
    """`await call("send_message", QueueUrl=…)` with either SDK, each call tried once."""
    config = Config(**{**ONCE, **options})
    if sdk == "boto3":
        blocking = account.client(service, config=config)
        yield lambda operation, **request: asyncio.to_thread(
            getattr(blocking, operation), **request
        )
        blocking.close()
        return
    async with SESSION.client(
        service,
        config=config,
        endpoint_url=account.endpoint_url,
        region_name=account.region,
        aws_access_key_id=account.access_key_id,
        aws_secret_access_key=account.secret_access_key,
    ) as client:
        yield lambda operation, **request: getattr(client, operation)(**request)


@asynccontextmanager
async def proxied(
    sdk: str, aws: AwsAccount, plan: FaultPlan = NO_FAULTS, service: str = "sqs", **options: Any
) -> AsyncIterator[tuple[FaultProxy, Call]]:
    """A proxy in front of the server, and a client of either SDK in front of the proxy."""
    async with (
        FaultProxy(aws.endpoint_url, plan) as proxy,
        client_of(sdk, aws.through(proxy.url), service, **options) as call,
    ):
        yield proxy, call


@pytest.fixture
def queue(aws: AwsAccount) -> str:
    url: str = aws.client("sqs").create_queue(QueueName="orders")["QueueUrl"]
    return url


def bodies(aws: AwsAccount, queue: str) -> list[str]:
    """What the server has, seen without the proxy."""
    reply = aws.client("sqs").receive_message(QueueUrl=queue, MaxNumberOfMessages=10)
    return [message["Body"] for message in reply.get("Messages", [])]


@BOTH
async def test_when_nothing_is_planned_then_requests_pass_and_are_counted(
    sdk: str, aws: AwsAccount
) -> None:
    async with proxied(sdk, aws) as (proxy, call):
        url = (await call("create_queue", QueueName="orders"))["QueueUrl"]
        await call("send_message", QueueUrl=url, MessageBody="a" * 500_000)
        [message] = (await call("receive_message", QueueUrl=url))["Messages"]
        receipt = message["ReceiptHandle"]
        await call("delete_message", QueueUrl=url, ReceiptHandle=receipt)

    assert url.startswith(aws.endpoint_url), "the server names itself, not the proxy"
    assert message["Body"] == "a" * 500_000
    assert proxy.counts == {
        "CreateQueue": 1,
        "SendMessage": 1,
        "ReceiveMessage": 1,
        "DeleteMessage": 1,
    }
    assert proxy.faults == {}
    assert proxy.connection_count == 1, "kept alive"


@BOTH
@pytest.mark.parametrize("fault", [DROP_BEFORE, LOSE_RESPONSE])
async def test_when_the_connection_is_lost_then_only_the_server_knows_what_it_did(
    sdk: str, fault: Fault, aws: AwsAccount, queue: str
) -> None:
    plan = FaultPlan.script({"SendMessage": [fault]})
    async with proxied(sdk, aws, plan) as (proxy, call):
        with pytest.raises(LOST):
            await call("send_message", QueueUrl=queue, MessageBody="first")
        await call("send_message", QueueUrl=queue, MessageBody="second")

    assert proxy.faults == {fault.kind: 1}
    expected = ["first", "second"] if fault is LOSE_RESPONSE else ["second"]
    assert sorted(bodies(aws, queue)) == expected


@BOTH
@pytest.mark.parametrize("operation", ["SendMessage", "DeleteMessage"])
async def test_when_a_response_is_cut_then_the_sdk_fails_and_the_server_has_done_it(
    sdk: str, operation: str, aws: AwsAccount, queue: str
) -> None:
    plan = FaultPlan.script({operation: [TRUNCATE]})
    sqs = aws.client("sqs")
    sqs.send_message(QueueUrl=queue, MessageBody="old")
    [old] = sqs.receive_message(QueueUrl=queue, VisibilityTimeout=0)["Messages"]
    requests = {
        "SendMessage": ("send_message", {"MessageBody": "new"}),
        "DeleteMessage": ("delete_message", {"ReceiptHandle": old["ReceiptHandle"]}),
    }

    async with proxied(sdk, aws, plan) as (_, call):
        name, request = requests[operation]
        with pytest.raises(ConnectionClosedError):
            await call(name, QueueUrl=queue, **request)

    expected = ["new", "old"] if operation == "SendMessage" else []
    assert sorted(bodies(aws, queue)) == expected


@BOTH
@pytest.mark.parametrize("fault", [SERVER_ERROR, UNAVAILABLE])
async def test_when_the_service_is_ill_then_the_sdk_sees_its_status(
    sdk: str, fault: Fault, aws: AwsAccount, queue: str
) -> None:
    plan = FaultPlan.script({"SendMessage": [fault]})
    async with proxied(sdk, aws, plan) as (_, call):
        with pytest.raises(ClientError) as caught:
            await call("send_message", QueueUrl=queue, MessageBody="first")

    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == fault.status
    assert bodies(aws, queue) == []


@BOTH
@pytest.mark.parametrize(
    ("service", "operation", "code"),
    [
        ("sqs", "list_queues", "RequestThrottled"),
        ("sns", "list_topics", "Throttling"),
        ("s3", "list_buckets", "SlowDown"),
    ],
)
async def test_when_throttled_then_the_sdk_reads_the_services_own_code(
    sdk: str, service: str, operation: str, code: str, aws: AwsAccount
) -> None:
    async with proxied(sdk, aws, FaultPlan.every(THROTTLE), service=service) as (_, call):
        with pytest.raises(ClientError) as caught:
            await call(operation)

    assert caught.value.response["Error"]["Code"] == code


@BOTH
async def test_when_throttled_once_then_the_sdks_retry_succeeds(
    sdk: str, aws: AwsAccount, queue: str
) -> None:
    retries = {"total_max_attempts": 2, "mode": "standard"}
    plan = FaultPlan.script({"SendMessage": [THROTTLE]})
    async with proxied(sdk, aws, plan, retries=retries) as (proxy, call):
        await call("send_message", QueueUrl=queue, MessageBody="first")

    assert proxy.counts == {"SendMessage": 2}
    assert bodies(aws, queue) == ["first"]


@BOTH
async def test_when_a_request_is_late_then_a_client_without_patience_gives_up(
    sdk: str, aws: AwsAccount, queue: str
) -> None:
    plan = FaultPlan.script({"SendMessage": [delay(60)]})
    async with proxied(sdk, aws, plan, read_timeout=0.2) as (proxy, call):
        with pytest.raises(ReadTimeoutError):
            await call("send_message", QueueUrl=queue, MessageBody="first")

    assert proxy.faults == {FaultKind.DELAY: 1}


@BOTH
async def test_when_severed_then_connections_are_refused_until_it_is_restored(
    sdk: str, aws: AwsAccount, queue: str
) -> None:
    async with proxied(sdk, aws) as (proxy, call):
        await call("send_message", QueueUrl=queue, MessageBody="before")
        url = proxy.url
        await proxy.sever()
        with pytest.raises(LOST):
            await call("send_message", QueueUrl=queue, MessageBody="lost")
        with pytest.raises(EndpointConnectionError):
            await call("send_message", QueueUrl=queue, MessageBody="lost")
        await proxy.restore()
        await call("send_message", QueueUrl=queue, MessageBody="after")
        assert proxy.url == url

    assert sorted(bodies(aws, queue)) == ["after", "before"]


@BOTH
async def test_when_severed_during_a_long_poll_then_the_poll_ends(
    sdk: str, aws: AwsAccount, queue: str
) -> None:
    async with proxied(sdk, aws) as (proxy, call):
        poll = asyncio.ensure_future(call("receive_message", QueueUrl=queue, WaitTimeSeconds=20))
        await proxy.saw("ReceiveMessage")

        await proxy.sever()

        with pytest.raises(LOST):
            await poll


@BOTH
async def test_when_objects_pass_then_they_are_whole_and_heads_have_no_body(
    sdk: str, aws: AwsAccount
) -> None:
    bucket, body = f"claims-{aws.account_id}", bytes(range(256)) * 10_000
    place = {"LocationConstraint": aws.region}
    async with proxied(sdk, aws, service="s3") as (proxy, call):
        await call("create_bucket", Bucket=bucket, CreateBucketConfiguration=place)
        await call("put_object", Bucket=bucket, Key="body", Body=body)
        head = await call("head_object", Bucket=bucket, Key="body")
        await call("delete_object", Bucket=bucket, Key="other")

    assert head["ContentLength"] == len(body)
    assert proxy.counts == {"PUT": 2, "HEAD": 1, "DELETE": 1}
    found = aws.client("s3").get_object(Bucket=bucket, Key="body")
    assert found["Body"].read() == body


async def test_when_the_client_leaves_then_the_server_is_told() -> None:
    # given: a server that never answers and notes when it is left
    asked, left = asyncio.Event(), asyncio.Event()

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()
        left.set()
        writer.close()

    async with await asyncio.start_server(never_answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with FaultProxy(f"http://127.0.0.1:{port}", NO_FAULTS) as proxy:
            _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
            await asked.wait()

            # when
            writer.close()

            # then
            await left.wait()

"""Who may listen where, and who may ask."""

from __future__ import annotations

import asyncio
from typing import Any

import boto3
import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from gateways.sqs_server.http import HttpServer
from gateways.sqs_server.http.server import bind, is_loopback, port_of
from pump.errors import ConfigurationError

from .conftest import World, json_request


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
async def test_when_others_could_connect_and_nothing_is_verified_then_it_does_not_start(
    world: World, host: str
) -> None:
    with pytest.raises(ConfigurationError, match="give access keys and secrets"):
        await world.start(host)


async def test_when_requests_are_verified_then_it_may_listen_anywhere(world: World) -> None:
    await world.start("0.0.0.0", credentials={"AKIAEXAMPLE": "secret"})

    reply = await world.ask(json_request())

    assert reply.status == 403
    assert reply.headers["x-amzn-query-error"] == "MissingAuthenticationToken;Sender"
    assert world.operations.calls == []


async def test_when_the_host_is_a_name_then_every_address_behind_it_is_bound(world: World) -> None:
    await world.start("localhost")

    assert world.bound.host == "localhost"
    assert world.bound.url == f"http://localhost:{world.bound.port}"
    assert (await world.ask(json_request())).status == 200


async def test_when_the_host_does_not_resolve_then_it_is_said_so(world: World) -> None:
    with pytest.raises(ConfigurationError, match="cannot be resolved"):
        await world.start("no such host")


async def test_when_it_is_started_twice_then_it_is_said_so(world: World) -> None:
    server = await world.start()

    with pytest.raises(ConfigurationError, match="started already"):
        await server.start("127.0.0.1", 0)


async def test_when_the_machine_lacks_one_of_two_addresses_then_the_other_is_bound() -> None:
    servers = await bind(asyncio.Protocol, ["203.0.113.1", "127.0.0.1"], 0)

    assert port_of(servers) > 0
    assert len(servers) == 1
    servers[0].close()


async def test_when_the_machine_lacks_every_address_then_it_is_said_so() -> None:
    with pytest.raises(ConfigurationError, match="no such address"):
        await bind(asyncio.Protocol, ["203.0.113.1", "203.0.113.2"], 0)


async def test_when_the_port_is_taken_then_it_is_said_so(world: World) -> None:
    await world.start()
    second = HttpServer(world.operations.call)

    with pytest.raises(ConfigurationError, match="choose another port"):
        await second.start("127.0.0.1", world.bound.port)

    await second.aclose()


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.2", False),
        ("fe80::1%eth0", False),
    ],
)
def test_when_an_address_is_this_machines_alone_then_it_is_loopback(
    address: str, expected: bool
) -> None:
    assert is_loopback(address) is expected


def _client(endpoint: str, secret: str) -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=endpoint,
        region_name="eu-west-1",
        aws_access_key_id="AKIAEXAMPLE",
        aws_secret_access_key=secret,
        config=Config(retries={"max_attempts": 0}),
    )


async def test_when_boto3_signs_with_the_secret_then_it_is_served(world: World) -> None:
    await world.start(credentials={"AKIAEXAMPLE": "secret"})
    world.operations.result = {"QueueUrl": "http://x/1/q"}
    client = await asyncio.to_thread(_client, world.bound.url, "secret")

    shown = await asyncio.to_thread(client.get_queue_url, QueueName="q")

    assert shown["QueueUrl"] == "http://x/1/q"
    assert world.operations.calls[0].region == "eu-west-1"


async def test_when_a_url_is_presigned_with_the_secret_then_whoever_has_it_is_served(
    world: World,
) -> None:
    await world.start(credentials={"AKIAEXAMPLE": "secret"})
    body = "MessageBody=a%20b%2Bc"
    request = AWSRequest("GET", f"{world.bound.url}/000000000000/q?Action=SendMessage&{body}")
    SigV4QueryAuth(Credentials("AKIAEXAMPLE", "secret"), "sqs", "eu-west-1").add_auth(request)
    path = request.url.removeprefix(world.bound.url)

    reply = await world.ask(
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{world.bound.port}\r\n\r\n".encode()
    )

    assert reply.status == 200
    [call] = world.operations.calls
    assert call.region == "eu-west-1"
    assert call.parameters == {
        "QueueUrl": f"{world.bound.url}/000000000000/q",
        "MessageBody": "a b+c",
    }


@pytest.mark.parametrize(
    ("authorization", "code"),
    [
        (b"", b"MissingAuthenticationToken"),
        (
            b"Authorization: AWS4-HMAC-SHA256 Credential=AKIASTRANGER/20261118/eu-west-1/sqs/"
            b"aws4_request, SignedHeaders=host, Signature=0\r\nX-Amz-Date: 20261118T000000Z\r\n",
            b"UnrecognizedClientException",
        ),
    ],
    ids=["none", "of a stranger"],
)
async def test_when_the_headers_have_no_signature_of_ours_then_no_body_is_waited_for(
    world: World, authorization: bytes, code: bytes
) -> None:
    """Else a hundred strangers could fill the memory with bodies that are refused."""
    await world.start(credentials={"AKIAEXAMPLE": "secret"})
    wire = await world.connect()

    await wire.say(
        b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.SendMessage\r\n",
        authorization,
        b"Content-Length: 4000000\r\n\r\n",
    )
    reply = await wire.reply()

    assert reply.status == 403
    assert code in reply.body
    assert reply.headers["connection"] == "close"


async def test_when_a_get_without_authorization_would_change_something_then_it_is_refused(
    world: World,
) -> None:
    await world.start()
    host = b" HTTP/1.1\r\nHost: localhost\r\n"

    refused = await world.ask(b"GET /?Action=CreateQueue&QueueName=q" + host + b"\r\n")
    listed = await world.ask(b"GET /?Action=ListQueues" + host + b"\r\n")
    signed = await world.ask(
        b"GET /?Action=CreateQueue&QueueName=q"
        + host
        + b"Authorization: AWS4-HMAC-SHA256 x\r\n\r\n"
    )

    assert (refused.status, listed.status, signed.status) == (403, 200, 200)
    assert b"AccessDenied" in refused.body
    assert [call.operation for call in world.operations.calls] == ["ListQueues", "CreateQueue"]


async def test_when_boto3_signs_with_another_secret_then_it_is_refused(world: World) -> None:
    await world.start(credentials={"AKIAEXAMPLE": "secret"})
    client = await asyncio.to_thread(_client, world.bound.url, "wrong")

    with pytest.raises(ClientError) as refused:
        await asyncio.to_thread(client.list_queues)

    assert refused.value.response["Error"]["Code"] == "SignatureDoesNotMatch"
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    assert world.operations.calls == []

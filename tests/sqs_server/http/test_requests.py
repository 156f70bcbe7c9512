"""Requests over a real socket: answered, refused, never the server's end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from gateways.sqs_server.errors import queue_does_not_exist
from gateways.sqs_server.protocol import Call
from pump.errors import StorageFailed
from pump.testing.virtual_clock import VirtualClock

from .conftest import World, json_request


async def test_when_a_json_request_comes_then_its_call_is_answered(world: World) -> None:
    await world.start()
    world.operations.result = {"QueueUrls": ["http://x/1/q"]}

    reply = await world.ask(json_request(b'{"MaxResults": 3}'))

    assert reply.status == 200
    assert msgspec.json.decode(reply.body) == {"QueueUrls": ["http://x/1/q"]}
    assert reply.headers["content-type"] == "application/x-amz-json-1.0"
    assert len(reply.headers["x-amzn-requestid"]) == 36
    [call] = world.operations.calls
    assert (call.operation, call.parameters) == ("ListQueues", {"MaxResults": 3})


async def test_when_a_form_comes_then_the_answer_is_xml(world: World) -> None:
    await world.start()
    body = b"Action=DeleteQueue&Version=2012-11-05"

    reply = await world.ask(
        b"POST /000000000000/q HTTP/1.1\r\nHost: localhost:1\r\n"
        b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n%s"
        % (len(body), body)
    )

    assert reply.status == 200
    assert reply.headers["content-type"] == "text/xml; charset=utf-8"
    assert b"<DeleteQueueResponse " in reply.body
    assert world.operations.calls[0].parameters == {"QueueUrl": "http://localhost:1/000000000000/q"}


async def test_when_one_connection_asks_twice_then_both_are_answered(world: World) -> None:
    await world.start()
    wire = await world.connect()

    await wire.say(json_request(), json_request())

    assert [(await wire.reply()).status, (await wire.reply()).status] == [200, 200]


async def test_when_the_client_speaks_http_1_0_then_the_answer_ends_with_the_connection(
    world: World,
) -> None:
    await world.start()
    wire = await world.connect()

    await wire.say(json_request().replace(b"HTTP/1.1", b"HTTP/1.0"))
    reply = await wire.reply()

    assert (reply.status, reply.body) == (200, b"{}")
    assert await wire.is_closed()


async def test_when_an_answer_comes_then_it_is_dated_so_that_sdks_can_correct_their_clocks(
    world: World,
) -> None:
    clock = VirtualClock()
    await world.start(clock=clock)

    reply = await world.ask(json_request())

    assert reply.headers["date"] == "Sun, 15 Jun 2025 15:06:40 GMT"
    assert reply.headers["server"] == "pumphouse"


async def test_when_an_operation_refuses_then_its_code_and_status_are_the_answer(
    world: World,
) -> None:
    await world.start()

    async def refuse(call: Call) -> Mapping[str, Any]:
        raise queue_does_not_exist()

    world.operations.operate = refuse

    reply = await world.ask(json_request())

    assert reply.status == 400
    assert reply.headers["x-amzn-query-error"] == "AWS.SimpleQueueService.NonExistentQueue;Sender"
    assert msgspec.json.decode(reply.body)["__type"] == "com.amazonaws.sqs#QueueDoesNotExist"


async def test_when_the_disk_refuses_then_the_service_is_unavailable(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """T3: nothing that was not written is acknowledged."""
    await world.start()

    async def fail(call: Call) -> Mapping[str, Any]:
        raise StorageFailed("/data/queues.db", "database or disk is full")

    world.operations.operate = fail

    reply = await world.ask(json_request())

    assert reply.status == 503
    assert reply.headers["x-amzn-query-error"] == "ServiceUnavailable;Receiver"
    assert b"database or disk is full" in reply.body


async def test_when_an_operation_has_a_bug_then_it_is_logged_and_the_next_request_is_answered(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.start()
    wire = await world.connect()

    async def fail(call: Call) -> Mapping[str, Any]:
        raise ZeroDivisionError

    world.operations.operate = fail
    with caplog.at_level(logging.ERROR):
        await wire.say(json_request(b'{"QueueNamePrefix": "secret body"}'))
        failed = await wire.reply()
    world.operations.operate = None
    await wire.say(json_request())

    assert failed.status == 500
    assert b"ZeroDivision" not in failed.body
    assert failed.headers["x-amzn-query-error"] == "InternalFailure;Receiver"
    assert "request.failed" in caplog.text
    assert "secret body" not in caplog.text
    assert (await wire.reply()).status == 200


async def test_when_health_is_asked_then_it_is_ok(world: World) -> None:
    await world.start()

    reply = await world.ask(b"GET /_health HTTP/1.1\r\nHost: localhost\r\n\r\n")

    assert reply.status == 200
    health = msgspec.json.decode(reply.body)
    assert health["status"] == "ok"
    assert health["version"]


@pytest.mark.parametrize("path", [b"/", b"/favicon.ico", b"/a/b/c/d", b"/%ff%00", b"/?x=1"])
async def test_when_a_path_means_nothing_then_it_is_an_unknown_operation(
    world: World, path: bytes
) -> None:
    await world.start()

    reply = await world.ask(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path)

    assert (reply.status, reply.body) == (404, b"<UnknownOperationException/>")


async def test_when_only_the_head_is_asked_then_no_body_comes(world: World) -> None:
    await world.start()
    wire = await world.connect()

    await wire.say(b"HEAD /_health HTTP/1.1\r\nHost: localhost\r\n\r\n", json_request())

    assert (await wire.reply(has_body=False)).status == 200
    assert (await wire.reply()).status == 200


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nBroken header\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"y" * 200_000 + b"\r\n\r\n",
        b"GET /" + b"y" * 200_000 + b" HTTP/1.1\r\n\r\n",
    ],
)
async def test_when_garbage_comes_then_it_is_a_bad_request_and_the_server_lives_on(
    world: World, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await world.start()

    reply = await world.ask(garbage)

    assert reply.status == 400
    assert (await world.ask(json_request())).status == 200
    assert not [record for record in caplog.records if record.levelno > logging.DEBUG]


async def test_when_a_page_of_another_site_asks_then_nothing_is_done(world: World) -> None:
    await world.start()

    reply = await world.ask(json_request(b"{}", "DeleteQueue", b"Origin: https://evil.example"))

    assert reply.status == 403
    assert world.operations.calls == []


async def test_when_an_sdk_sends_no_origin_then_it_is_served(world: World) -> None:
    await world.start()

    assert (await world.ask(json_request())).status == 200


async def test_when_the_client_goes_then_its_long_poll_is_cancelled(world: World) -> None:
    """R44: so that the engine can give the messages to somebody else."""
    await world.start()
    waits, cancelled = asyncio.Event(), asyncio.Event()

    async def wait(call: Call) -> Mapping[str, Any]:
        waits.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return {}

    world.operations.operate = wait
    wire = await world.connect()
    await wire.say(json_request(b"{}", "ReceiveMessage"))
    await waits.wait()

    wire.writer.close()

    await cancelled.wait()

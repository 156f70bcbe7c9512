"""What a client may cost: sizes, times, numbers. No limit ends the server."""

from __future__ import annotations

import pytest

from gateways.sqs_server.http import HttpLimits
from pump.testing.virtual_clock import VirtualClock

from .conftest import World, json_request

SMALL = HttpLimits(max_body_bytes=1000)


async def test_when_the_body_is_announced_too_long_then_it_is_refused_unread(
    world: World,
) -> None:
    await world.start(limits=SMALL)
    wire = await world.connect()

    await wire.say(
        b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.SendMessage\r\n"
        b"Content-Length: 1001\r\n\r\n"
    )
    reply = await wire.reply()

    assert reply.status == 413
    assert reply.headers["connection"] == "close"
    assert reply.headers["x-amzn-query-error"] == "RequestEntityTooLarge;Sender"
    wire.writer.close()
    assert (await world.ask(json_request())).status == 200


async def test_when_the_body_turns_out_too_long_then_it_is_refused(world: World) -> None:
    await world.start(limits=SMALL)
    wire = await world.connect()

    await wire.say(
        b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.SendMessage\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
    )
    for _ in range(3):
        await wire.say(b"200\r\n", b"x" * 512, b"\r\n")

    assert (await wire.reply()).status == 413
    assert world.operations.calls == []


async def test_when_a_long_body_comes_at_once_then_it_is_refused(world: World) -> None:
    await world.start(limits=SMALL)
    chunked = (
        b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.SendMessage\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n3e9\r\n%s\r\n0\r\n\r\n" % (b"x" * 1001)
    )

    assert (await world.ask(json_request(b"x" * 1001))).status == 413
    assert (await world.ask(chunked)).status == 413


async def test_when_the_body_has_the_longest_allowed_length_then_it_is_read(world: World) -> None:
    await world.start()
    body = b'{"MessageBody": "' + b"x" * (4 * 1024 * 1024 - 19) + b'"}'
    assert len(body) == 4 * 1024 * 1024

    reply = await world.ask(json_request(body, "SendMessage"))

    assert reply.status == 200
    assert len(world.operations.calls[0].parameters["MessageBody"]) == len(body) - 19


async def test_when_a_body_is_compressed_then_it_is_not_unpacked(world: World) -> None:
    await world.start()

    reply = await world.ask(json_request(b"\x1f\x8b", "SendMessage", b"Content-Encoding: gzip"))

    assert reply.status == 400
    assert b"SerializationException" in reply.body


async def test_when_a_chunk_is_malformed_then_it_is_a_bad_request(world: World) -> None:
    await world.start()
    wire = await world.connect()

    await wire.say(
        b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.SendMessage\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n",
    )
    await wire.say(b"zzz\r\n")

    assert (await wire.reply()).status == 400
    assert (await world.ask(json_request())).status == 200


async def test_when_the_client_expects_a_go_ahead_then_it_gets_one(world: World) -> None:
    await world.start()
    wire = await world.connect()
    head, body = json_request(b'{"MaxResults": 3}', "ListQueues", b"Expect: 100-continue").split(
        b"\r\n\r\n"
    )

    await wire.say(head, b"\r\n\r\n")
    go_ahead = await wire.reader.readuntil(b"\r\n\r\n")
    await wire.say(body)

    assert go_ahead == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert (await wire.reply()).status == 200
    assert world.operations.calls[0].parameters == {"MaxResults": 3}


async def test_when_the_headers_dribble_in_then_the_connection_is_closed(
    world: World, clock: VirtualClock
) -> None:
    await world.start(clock=clock)
    wire = await world.connect()

    await wire.say(b"POST / HTTP/1.1\r\n")
    while not wire.reader.at_eof() and clock.now_s() < 1_020:
        wire.writer.write(b"X: y\r\n")
        await clock.advance(1)

    assert await wire.is_closed()


async def test_when_the_body_does_not_come_then_the_request_times_out(
    world: World, clock: VirtualClock
) -> None:
    await world.start(clock=clock)
    wire = await world.connect()
    await wire.say(json_request(b"{}")[:-1])
    await world.ask(json_request())  # by now the first one is being read

    await clock.advance(30)

    assert (await wire.reply()).status == 408


async def test_when_a_connection_is_idle_then_it_is_closed_in_time(
    world: World, clock: VirtualClock
) -> None:
    await world.start(clock=clock)
    wire = await world.connect()
    await wire.say(json_request())
    await wire.reply()

    await clock.advance(70)
    await wire.say(json_request())
    still_served = await wire.reply()
    await clock.advance(80)

    assert still_served.status == 200
    assert await wire.is_closed()


async def test_when_there_are_too_many_connections_then_the_next_is_turned_away(
    world: World,
) -> None:
    await world.start(limits=HttpLimits(max_connections=2))
    first, second = await world.connect(), await world.connect()
    for wire in (first, second):
        await wire.say(json_request())
        await wire.reply()

    third = await world.connect()

    assert (await third.reply()).status == 503
    assert await third.is_closed()
    await first.say(json_request())
    assert (await first.reply()).status == 200


async def test_when_a_connection_closes_then_its_place_is_free(world: World) -> None:
    await world.start(limits=HttpLimits(max_connections=1))
    first = await world.connect()
    await first.say(json_request(b"{}", "ListQueues", b"Connection: close"))
    await first.reply()
    assert await first.is_closed()

    assert (await world.ask(json_request())).status == 200


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()

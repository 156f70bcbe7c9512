"""What a client may cost: sizes, times, numbers. No limit ends the server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from gateways.sqs_server.http import HttpLimits
from gateways.sqs_server.protocol import Call
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


async def test_when_all_connections_have_requests_under_way_then_the_next_is_turned_away(
    world: World,
) -> None:
    await world.start(limits=HttpLimits(max_connections=2))
    under_way, is_over = asyncio.Semaphore(0), asyncio.Event()

    async def wait(call: Call) -> Mapping[str, Any]:
        under_way.release()
        await is_over.wait()
        return {}

    world.operations.operate = wait
    first, second = await world.connect(), await world.connect()
    for wire in (first, second):
        await wire.say(json_request())
        await under_way.acquire()

    third = await world.connect()

    assert (await third.reply()).status == 503
    assert await third.is_closed()
    is_over.set()
    assert (await first.reply()).status == 200


@pytest.mark.parametrize(
    "half", [b"", b"POST / HT", json_request(b"{}")[:-1]], ids=["silent", "head", "body"]
)
async def test_when_half_open_connections_take_every_place_then_others_are_served_at_once(
    world: World, clock: VirtualClock, half: bytes
) -> None:
    """The clock stands still: nothing is waited for."""
    await world.start(limits=HttpLimits(max_connections=3), clock=clock)
    kept = await world.connect()
    await kept.say(json_request())
    await kept.reply()
    for _ in range(10):
        await clock.advance(0.001)
        wire = await world.connect()
        await wire.say(half)

    assert (await world.ask(json_request())).status == 200
    await kept.say(json_request())
    assert (await kept.reply()).status == 200, "who is half-open goes before who is idle"


async def test_when_idle_connections_take_every_place_then_the_oldest_has_to_go(
    world: World, clock: VirtualClock
) -> None:
    await world.start(limits=HttpLimits(max_connections=2), clock=clock)
    first, second = await world.connect(), await world.connect()
    for wire in (first, second):
        await clock.advance(1)
        await wire.say(json_request())
        await wire.reply()

    assert (await world.ask(json_request())).status == 200
    assert await first.is_closed()
    await second.say(json_request())
    assert (await second.reply()).status == 200


async def test_when_many_long_bodies_come_at_once_then_they_are_read_in_turn(
    world: World, clock: VirtualClock
) -> None:
    await world.start(limits=HttpLimits(max_body_bytes=1000, max_buffered_bytes=1500), clock=clock)
    request = json_request(b" " * 998 + b"{}")
    slow, waiting = await world.connect(), await world.connect()
    await slow.say(request[:-1])
    await world.ask(json_request())  # by now the first one is being read
    await waiting.say(request[:-1])
    await world.ask(json_request())
    await waiting.say(request[-1:])
    done_before = len(world.operations.calls)
    await slow.say(request[-1:])

    assert (await slow.reply()).status == 200
    assert (await waiting.reply()).status == 200
    assert done_before == 2, "what waits its turn is not read"


async def test_when_the_room_for_long_bodies_is_not_freed_then_the_oldest_is_told_to_try_again(
    world: World, clock: VirtualClock
) -> None:
    limits = HttpLimits(max_buffered_bytes=50, room_timeout_s=2)
    await world.start(limits=limits, clock=clock)
    request = json_request(b" " * 18 + b"{}")
    oldest, older, waiting = [await world.connect() for _ in range(3)]
    for wire in (oldest, older, waiting):
        await clock.advance(1)
        await wire.say(request[:-1])
        await world.ask(json_request())

    await clock.advance(2)
    refused = await oldest.reply()
    for wire in (waiting, older):
        await wire.say(request[-1:])

    assert refused.status == 503
    assert [(await wire.reply()).status for wire in (waiting, older)] == [200, 200]


async def test_when_long_bodies_are_announced_and_do_not_come_then_others_are_read_at_once(
    world: World, clock: VirtualClock
) -> None:
    """The clock stands still: nothing is waited for."""
    await world.start(limits=HttpLimits(max_body_bytes=1000, max_buffered_bytes=1500), clock=clock)
    request = json_request(b" " * 998 + b"{}")
    for _ in range(10):
        await (await world.connect()).say(request[:-999])
    await world.ask(json_request())  # by now they are being read
    honest = await world.connect()
    await honest.say(request[:-1])
    await world.ask(json_request())
    await honest.say(request[-1:])

    assert (await honest.reply()).status == 200


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

"""Closing: nothing new is taken, what is under way is answered, and then it is over."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from gateways.sqs_server.http import HttpLimits
from gateways.sqs_server.protocol import Call
from pump.clock import yield_to_loop

from .conftest import World, json_request


class Slow:
    """An operation that ends when it is told to."""

    def __init__(self) -> None:
        self.is_running = asyncio.Event()
        self.may_end = asyncio.Event()
        self.was_cancelled = False

    async def operate(self, call: Call) -> Mapping[str, Any]:
        self.is_running.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        return {"QueueUrls": ["done"]}


async def test_when_it_closes_then_a_long_poll_is_answered_empty(world: World) -> None:
    server = await world.start()
    slow = Slow()
    world.operations.operate = slow.operate
    wire = await world.connect()
    await wire.say(json_request(b'{"WaitTimeSeconds": 20}', "ReceiveMessage"))
    await slow.is_running.wait()

    await server.aclose()

    reply = await wire.reply()
    assert (reply.status, msgspec.json.decode(reply.body)) == (200, {})
    assert slow.was_cancelled
    assert await wire.is_closed()


async def test_when_it_closes_then_a_request_under_way_gets_its_answer(world: World) -> None:
    server = await world.start()
    slow = Slow()
    world.operations.operate = slow.operate
    wire = await world.connect()
    await wire.say(json_request())
    await slow.is_running.wait()

    closing = asyncio.create_task(server.aclose())
    await yield_to_loop()
    slow.may_end.set()
    await closing

    reply = await wire.reply()
    assert msgspec.json.decode(reply.body) == {"QueueUrls": ["done"]}
    assert not slow.was_cancelled
    assert await wire.is_closed()


async def test_when_a_request_comes_while_it_closes_then_it_is_told_to_come_back(
    world: World,
) -> None:
    server = await world.start()
    slow = Slow()
    world.operations.operate = slow.operate
    busy, late = await world.connect(), await world.connect()
    await late.say(b"GET /_health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await late.reply()
    await busy.say(json_request())
    await slow.is_running.wait()

    closing = asyncio.create_task(server.aclose())
    await yield_to_loop()
    await late.say(json_request())
    refused = await late.reply()
    slow.may_end.set()
    await closing

    assert refused.status == 503
    assert refused.headers["connection"] == "close"
    assert len(world.operations.calls) == 1


async def test_when_a_request_outlasts_the_grace_then_it_is_cut_off(world: World) -> None:
    server = await world.start(limits=HttpLimits(grace_s=0.01))
    slow = Slow()
    world.operations.operate = slow.operate
    wire = await world.connect()
    await wire.say(json_request())
    await slow.is_running.wait()

    await server.aclose()

    assert await wire.is_closed()
    assert slow.was_cancelled


async def test_when_it_closes_then_idle_connections_are_closed_and_new_ones_refused(
    world: World,
) -> None:
    server = await world.start()
    wire = await world.connect()
    await wire.say(json_request())
    await wire.reply()

    await server.aclose()

    assert await wire.is_closed()
    try:
        await world.connect()
    except ConnectionRefusedError:
        return
    raise AssertionError("the port is still open")


async def test_when_it_is_closed_twice_or_unstarted_then_that_is_no_error(world: World) -> None:
    await world.server.aclose()
    server = await world.start()

    await server.aclose()
    await server.aclose()

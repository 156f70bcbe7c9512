"""Two lanes, one behaviour: what is ordinary goes without aiohttp, and nobody can tell."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from gateways.sqs_server.http import HttpLimits
from gateways.sqs_server.protocol import Call

from .conftest import json_request
from .line import Line

REQUEST = json_request(b'{"MaxResults": 3}')
RECEIVE = json_request(b'{"WaitTimeSeconds": 20}', "ReceiveMessage")
GET = b"GET /_health HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Poll:
    """An operation that waits until it is told that there is something."""

    def __init__(self, line: Line) -> None:
        self.may_end = asyncio.Event()
        self.is_over = False
        line.operations.operate = self.operate

    async def operate(self, call: Call) -> Mapping[str, Any]:
        if call.operation == "ReceiveMessage":
            try:
                await self.may_end.wait()
            finally:
                self.is_over = True
            return {"Messages": []}
        return {"QueueUrls": [str(call.parameters.get("MaxResults"))]}


def bodies(heard: bytes) -> list[Any]:
    """The JSON of each answer."""
    found = []
    while heard:
        head, _, heard = heard.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        found.append(msgspec.json.decode(heard[:length]))
        heard = heard[length:]
    return found


async def test_when_an_ordinary_request_comes_whole_then_aiohttp_has_no_part_in_it() -> None:
    line = Line()

    await line.say(REQUEST, REQUEST)

    assert line.lanes == (2, 0)
    assert line.heard.count(b"HTTP/1.1 200 OK\r\n") == 2


async def test_when_a_request_is_split_anywhere_then_the_answer_is_that_of_the_whole() -> None:
    whole = Line()
    await whole.say(REQUEST)

    for position in range(1, len(REQUEST)):
        line = Line()
        await line.say(REQUEST[:position], REQUEST[position:])

        assert line.heard == whole.heard, position
        assert line.operations.calls[0] == whole.operations.calls[0]
        assert len(line.operations.calls) == 1


async def test_when_bytes_come_one_by_one_then_the_answer_is_that_of_the_whole() -> None:
    whole, line = Line(), Line()
    await whole.say(REQUEST)

    await line.say(*(REQUEST[at : at + 1] for at in range(len(REQUEST))))

    assert line.heard == whole.heard


@pytest.mark.parametrize("count", [2, 3, 40])
async def test_when_requests_come_in_one_chunk_then_each_is_answered_in_order(count: int) -> None:
    line = Line()
    Poll(line)

    await line.say(b"".join(json_request(b'{"MaxResults": %d}' % n) for n in range(count)))
    for _ in range(count):
        await line.settle()

    assert bodies(line.heard) == [{"QueueUrls": [str(n)]} for n in range(count)]
    assert line.lanes == (count, 0)


async def test_when_two_requests_are_split_anywhere_then_both_are_answered_in_order() -> None:
    two = json_request(b'{"MaxResults": 1}') + json_request(b'{"MaxResults": 2}')

    for position in range(1, len(two)):
        line = Line()
        Poll(line)
        await line.say(two[:position], two[position:])

        assert bodies(line.heard) == [{"QueueUrls": ["1"]}, {"QueueUrls": ["2"]}], position


@pytest.mark.parametrize("is_one_chunk", [True, False])
@pytest.mark.parametrize("second", [REQUEST, GET, REQUEST[:-5]])
async def test_when_a_request_follows_a_long_poll_then_it_waits_for_it(
    is_one_chunk: bool, second: bytes
) -> None:
    line = Line()
    poll = Poll(line)

    await line.say(*([RECEIVE + second] if is_one_chunk else [RECEIVE, second]))
    assert line.heard == b""
    assert len(line.operations.calls) == 1
    poll.may_end.set()
    await line.settle()
    if second == REQUEST[:-5]:
        await line.say(REQUEST[-5:])

    first, after = bodies(line.heard)
    assert first == {"Messages": []}
    assert after == ({"QueueUrls": ["3"]} if second != GET else {"status": "ok", "version": "1"})


async def test_when_much_is_sent_ahead_of_an_answer_then_it_is_read_no_further() -> None:
    line = Line()
    poll = Poll(line)
    await line.say(RECEIVE)

    await line.say(REQUEST, REQUEST)
    assert line.transport.is_reading()
    while line.transport.is_reading():
        line.connection.data_received(REQUEST * 50)
    poll.may_end.set()
    await line.settle()

    assert line.transport.is_reading()
    assert len(bodies(line.heard)) > 1


async def test_when_a_body_waits_for_room_then_its_connection_is_read_no_further() -> None:
    limits = HttpLimits(max_buffered_bytes=100_000)
    slow, waiting = Line(limits=limits), Line(limits=limits)
    waiting.exchange = slow.exchange
    piece = b" " * 16_384
    head = json_request(piece * 200).removesuffix(piece * 200)
    await slow.say(head, *[piece] * 6)

    await waiting.say(head)
    taken_count = 0
    while waiting.transport.is_reading() and taken_count < 200:
        await waiting.say(piece)
        taken_count += 1

    assert taken_count < 6


@pytest.mark.parametrize("garbage", [b"nonsense\r\n\r\n", b"\x00", b"\r\n" * 3 + b"\xff\r\n\r\n"])
async def test_when_garbage_follows_a_request_then_only_the_garbage_is_refused(
    garbage: bytes,
) -> None:
    line = Line()

    await line.say(REQUEST + garbage)

    assert line.heard.startswith(b"HTTP/1.1 200 OK\r\n")
    assert len(line.operations.calls) == 1
    assert b" 400 Bad Request\r\n" in line.heard
    assert line.transport.is_closing()


async def test_when_the_length_is_less_than_what_comes_then_the_rest_is_no_part_of_it() -> None:
    line = Line()

    await line.say(REQUEST.replace(b"Content-Length: 17", b"Content-Length: 2"))

    assert b"SerializationException" in line.heard
    assert line.operations.calls == []
    assert b" 400 Bad Request\r\n" in line.heard.partition(b"\r\n\r\n")[2]
    assert line.transport.is_closing()


async def test_when_the_length_is_more_than_what_comes_then_the_request_times_out() -> None:
    line = Line()

    await line.say(REQUEST.replace(b"Content-Length: 17", b"Content-Length: 18"))
    assert line.heard == b""
    await line.clock.advance(30)
    await line.settle()

    assert line.heard.startswith(b"HTTP/1.1 408 ")
    assert line.lanes == (0, 1)
    assert line.operations.calls == []


async def test_when_a_body_comes_in_pieces_then_the_next_request_is_fast_again() -> None:
    line = Line()
    long = json_request(b'{"MessageBody": "%s"}' % (b"x" * 300_000), "SendMessage")

    await line.say(REQUEST, long[:70_000], long[70_000:200_000], long[200_000:], REQUEST)

    assert line.lanes == (2, 1)
    assert line.heard.count(b"HTTP/1.1 200 OK\r\n") == 3


async def test_when_a_body_in_pieces_is_refused_unread_then_the_connection_still_serves() -> None:
    line = Line()
    origin = b"Origin: https://evil.example"
    long = json_request(b"x" * 600_000, "SendMessage", origin)

    await line.say(long[:-300_000], long[-300_000:], REQUEST)

    assert line.heard.startswith(b"HTTP/1.1 403 ")
    assert line.transport.is_closing() or line.transport.is_reading()
    assert line.transport.is_closing() or b"HTTP/1.1 200 OK\r\n" in line.heard


async def test_when_a_body_is_announced_too_long_then_aiohttp_turns_it_away() -> None:
    line = Line(limits=HttpLimits(max_body_bytes=10))

    await line.say(REQUEST)

    assert line.heard.startswith(b"HTTP/1.1 413 ")
    assert line.lanes == (0, 1)


async def test_when_the_client_goes_then_its_long_poll_is_cancelled() -> None:
    """R44: so that the engine can give the messages to somebody else."""
    line = Line()
    poll = Poll(line)
    await line.say(RECEIVE + REQUEST)

    await line.hang_up()

    assert poll.is_over
    assert line.lanes == (1, 0)
    assert len(line.operations.calls) == 1


async def test_when_it_closes_then_what_waits_behind_a_long_poll_is_not_begun() -> None:
    line = Line()
    Poll(line)
    await line.say(RECEIVE + REQUEST)

    assert await line.exchange.drain()
    await line.settle()

    assert bodies(line.heard) == [{}]
    assert b"Connection: close\r\n" in line.heard
    assert line.transport.is_closing()
    assert len(line.operations.calls) == 1


async def test_when_the_client_does_not_take_its_answer_then_the_next_request_waits() -> None:
    line = Line()
    poll = Poll(line)
    await line.say(RECEIVE)
    line.connection.pause_writing()
    poll.may_end.set()
    await line.say(REQUEST)
    assert len(bodies(line.heard)) == 1

    line.connection.resume_writing()
    await line.settle()

    assert len(bodies(line.heard)) == 2


async def test_when_the_client_never_takes_its_answer_then_it_counts_as_idle() -> None:
    limits = HttpLimits()
    line = Line(limits=limits)
    poll = Poll(line)
    await line.say(RECEIVE)
    await line.clock.advance(1_000)
    assert not line.connection.is_overdue(line.clock.now_s(), limits)

    line.connection.pause_writing()
    poll.may_end.set()
    await line.settle()
    await line.clock.advance(74)
    is_early = line.connection.is_overdue(line.clock.now_s(), limits)
    await line.clock.advance(1)

    assert not is_early
    assert line.connection.is_overdue(line.clock.now_s(), limits)


async def test_when_requests_have_ids_then_no_two_are_the_same() -> None:
    line = Line()

    await line.say(*[REQUEST] * 5, GET, REQUEST)

    found = line.transport.written.split(b"x-amzn-RequestId: ")[1:]
    ids = {each.partition(b"\r\n")[0] for each in found}
    assert len(ids) == 6
    assert {len(each) for each in ids} == {36}


async def test_when_the_client_goes_while_its_answer_is_made_then_it_is_not_written() -> None:
    """Law 7: uvloop raises for a write to a transport that is about to be lost."""
    line = Line()
    poll = Poll(line)
    await line.say(RECEIVE)

    [serving] = [each for each in asyncio.all_tasks() if each.get_name() == "sqs request"]
    poll.may_end.set()
    line.transport.close()
    await line.settle()

    assert serving.exception() is None
    assert line.heard == b""

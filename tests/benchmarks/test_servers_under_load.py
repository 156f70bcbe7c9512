"""The load on SQS servers: that it accounts for every message, and what it measures."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest

from benchmarks.catalogue import BY_NAME
from benchmarks.reading import Reading
from benchmarks.runner import run_rounds
from benchmarks.servers.client import (
    CallFailed,
    Connection,
    Requests,
    body_of,
    check_batch,
    messages_in,
)
from benchmarks.servers.load import DeletedMessages, percentiles_ms

pytest.importorskip("aiohttp")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


def measured(name: str, count: int) -> Reading:
    contender = attrs.evolve(BY_NAME[name], share=1.0)
    [reading] = run_rounds([contender], messages=count, repeat=1).readings[name]
    return reading


def test_when_pump_local_is_measured_then_its_time_and_its_clients_are_told() -> None:
    reading = measured("life-pump-local", 500)

    assert reading.messages == 500
    assert reading.wall_s > 0
    assert reading.cpu_s > 0
    assert "client_cpu_s" in reading.figures


def test_when_latency_is_measured_then_percentiles_of_both_ways_are_told() -> None:
    figures = measured("latency-pump-local", 100).figures

    assert figures["rate"] == 1000
    assert 0 < figures["sending_p50_ms"] <= figures["sending_p99_ms"]
    assert 0 < figures["receiving_p50_ms"] <= figures["receiving_p99_ms"]


def test_when_a_message_is_deleted_twice_then_it_counts_once() -> None:
    deleted = DeletedMessages(3, 2)

    for process, number in ((0, 0), (1, 0), (1, 2)):
        deleted.mark(process, number)

    assert not deleted.is_full
    assert deleted.missing_count == 1


def test_when_an_entry_of_a_batch_fails_then_the_load_fails() -> None:
    check_batch(b'{"Successful":[{"Id":"0"},{"Id":"1"}]}', 2)

    with pytest.raises(AssertionError):
        check_batch(b'{"Successful":[{"Id":"0"}],"Failed":[{"Id":"1"}]}', 2)


def test_a_message_says_which_one_it_is() -> None:
    answer = {"Messages": [{"Body": body_of(17), "ReceiptHandle": "r", "MessageId": "m"}]}

    [message] = messages_in(json.dumps(answer).encode())

    assert (message.number, message.ReceiptHandle) == (17, "r")
    assert messages_in(b"{}") == []


def test_percentiles_are_of_the_values_themselves() -> None:
    figures = percentiles_ms("x", [each / 1000 for each in range(1, 101)])

    assert figures == pytest.approx({"x_p50_ms": 50, "x_p99_ms": 99})


@asynccontextmanager
async def answering(*answers: bytes) -> AsyncIterator[str]:
    """A server that gives these answers, in turn, to whatever is asked."""
    left = list(answers)
    has_ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while left and await reader.read(65536):
            writer.write(left.pop(0))
            if b"close" in answers[-len(left) - 1]:
                break
        writer.close()
        if not left:
            has_ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await has_ended.wait()


KEPT = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
CLOSED = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n[]"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
REFUSED = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno"


async def test_when_a_server_hangs_up_after_an_answer_then_the_next_call_connects_anew() -> None:
    async with answering(KEPT, CLOSED, CHUNKED) as endpoint:
        connection = Connection(endpoint)
        request = Requests(endpoint).make("ListQueues")

        answers = [await connection.call(request) for _ in range(3)]

        connection.close()
    assert answers == [b"{}", b"[]", b"{}"]


async def test_when_a_server_refuses_then_the_call_raises() -> None:
    async with answering(REFUSED) as endpoint:
        connection = Connection(endpoint)

        with pytest.raises(CallFailed, match="400"):
            await connection.call(Requests(endpoint).make("ListQueues"))

        connection.close()

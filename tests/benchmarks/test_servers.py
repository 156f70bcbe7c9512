"""The load on SQS servers: that it accounts for every message, and what it measures."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from benchmarks.catalogue import BY_NAME, CONTENDERS
from benchmarks.contender import Group
from benchmarks.reading import Reading
from benchmarks.servers.calls import Calls, body_of, check_batch, messages_in
from benchmarks.servers.latency import percentiles_ms
from benchmarks.servers.life import Board
from benchmarks.servers.wire import Refused, Wire

pytest.importorskip("aiohttp")
ROOT = Path(__file__).resolve().parents[2]


def measured(name: str, count: int, folder: Path) -> Reading:
    child = subprocess.run(
        [sys.executable, "-m", "benchmarks.child", name, str(count)],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert child.returncode == 0, child.stderr
    return Reading.from_json(json.loads(child.stdout)["reading"])


def test_when_pump_local_is_measured_then_its_time_and_its_clients_are_told(
    tmp_path: Path,
) -> None:
    reading = measured("life-pump-local", 500, tmp_path)

    assert reading.messages == 500
    assert reading.wall_s > 0
    assert reading.cpu_s > 0
    assert "client_cpu_s" in reading.figures


def test_when_latency_is_measured_then_percentiles_of_both_ways_are_told(tmp_path: Path) -> None:
    figures = measured("latency-pump-local", 100, tmp_path).figures

    assert figures["rate"] == 1000
    assert 0 < figures["sending_p50_ms"] <= figures["sending_p99_ms"]
    assert 0 < figures["receiving_p50_ms"] <= figures["receiving_p99_ms"]


def test_when_many_are_pending_then_memory_start_and_receives_are_told(tmp_path: Path) -> None:
    reading = measured("pending-pump-local", 2000, tmp_path)

    assert len(reading.rss_mib) == 2
    assert min(reading.rss_mib) > 0
    assert reading.figures["start_s"] > 0
    assert reading.figures["few_p50_ms"] > 0
    assert reading.figures["many_p50_ms"] > 0


def test_every_server_is_put_under_the_same_load() -> None:
    servers = [each for each in CONTENDERS if each.group is Group.SQS_SERVERS]

    lives = {each.options["server"] for each in servers if each.module == "server_life"}

    assert lives == {"pump-local", "localstack", "moto"}
    assert BY_NAME["pending-pump-local"].messages(50_000) == 1_000_000


def test_when_a_message_is_deleted_twice_then_it_counts_once() -> None:
    board = Board(3, 2)

    for process, number in ((0, 0), (1, 0), (1, 2)):
        board.mark(process, number)

    assert not board.is_full
    assert board.missing_count == 1


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
        wire = Wire(endpoint)
        request = Calls(endpoint).make("ListQueues")

        answers = [await wire.call(request) for _ in range(3)]

        wire.close()
    assert answers == [b"{}", b"[]", b"{}"]


async def test_when_a_server_refuses_then_the_call_raises() -> None:
    async with answering(REFUSED) as endpoint:
        wire = Wire(endpoint)

        with pytest.raises(Refused, match="400"):
            await wire.call(Calls(endpoint).make("ListQueues"))

        wire.close()

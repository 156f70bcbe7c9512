"""The server over real sockets: garbage, slow clients and crowds cost it nothing."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import structlog.testing

from pump.clock import SYSTEM_CLOCK, yield_to_loop
from pump.errors import ConfigurationError
from pump.health.control import log_failure
from pump.http import server
from pump.http.server import LINGER_S, MAX_CONNECTIONS, READ_S, WRITE_S, Server
from pump.http.wire import Answer, Request
from pump.testing.virtual_clock import VirtualClock

from ..loops import BOTH_LOOPS
from .caller import call, connect, parse, send

TURNS = 20
"""Of the loop, until it has read that a client has gone."""
PLAIN = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"


class Bench:
    """A server that tells what it was asked; time is the test's."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.served: list[Request] = []
        self.body = b"hello"
        self.server = Server(self._answer, self.clock, log_failure)
        self.url = ""

    def _answer(self, request: Request) -> Answer:
        if request.path == ("broken",):
            raise RuntimeError("secret-token-123")
        self.served.append(request)
        return Answer(body=self.body, content_type="text/plain")

    @property
    def open_count(self) -> int:
        return len(self.server._connections)

    async def until_open(self, count: int) -> None:
        """Wait until so many clients are there."""
        async with SYSTEM_CLOCK.timeout(10):
            while self.open_count != count:
                await SYSTEM_CLOCK.sleep(0.001)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    bench.url = await bench.server.listen("health", "127.0.0.1", 0)
    yield bench
    closing = asyncio.create_task(bench.server.aclose())
    while not closing.done():
        await bench.clock.advance(0.1)
    assert bench.open_count == 0


async def test_when_a_request_comes_then_it_is_answered_and_the_connection_ended(
    bench: Bench,
) -> None:
    reply = await send(bench.url, PLAIN)

    assert (reply.status, reply.body) == (200, b"hello")
    assert reply.headers["content-length"] == "5"
    assert reply.headers["cache-control"] == "no-store"
    assert reply.headers["x-content-type-options"] == "nosniff"


async def test_when_head_is_asked_for_then_only_the_head_comes(bench: Bench) -> None:
    reply = await send(bench.url, b"HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n")

    assert (reply.status, reply.body) == (200, b"")
    assert reply.headers["content-length"] == "5"


async def test_when_a_body_comes_in_pieces_then_it_is_read_to_its_end(bench: Bench) -> None:
    reader, writer = await connect(bench.url)
    for piece in (b"POST /a HTTP/1.1\r\nHo", b"st: a\r\nContent-Length: 6\r\n\r\nabc", b"def"):
        writer.write(piece)
        await writer.drain()
        await SYSTEM_CLOCK.sleep(0.01)

    assert parse(await reader.read()).status == 200
    assert bench.served[0].body == b"abcdef"
    writer.close()


async def test_when_requests_are_pipelined_then_the_first_is_answered_and_the_rest_is_not(
    bench: Bench,
) -> None:
    reply = await send(bench.url, PLAIN + b"POST /b HTTP/1.1\r\nHost: a\r\n\r\n" * 100)

    assert reply.status == 200
    assert [request.path for request in bench.served] == [("a",)]


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 9_000 + b"\r\n\r\n", 431),
        (b"A" * 100_000, 431),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999\r\n\r\n" + b"x" * 99_999, 413),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"DELETE / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
    ],
    ids=["empty", "tls", "long header", "endless line", "long body", "chunked", "method"],
)
async def test_when_it_is_no_request_then_the_answer_is_a_4xx_that_arrives(
    bench: Bench, raw: bytes, status: int
) -> None:
    reply = await send(bench.url, raw)

    assert reply.status == status
    assert reply.json()["error"]
    assert bench.served == []


@pytest.mark.parametrize(
    "raw", [b"GET / HT", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc"]
)
async def test_when_a_client_ends_too_early_then_it_is_told(bench: Bench, raw: bytes) -> None:
    reader, writer = await connect(bench.url)
    writer.write(raw)
    writer.write_eof()

    assert parse(await reader.read()).status == 400
    writer.close()


async def test_when_a_client_says_nothing_and_goes_then_nothing_is_answered(bench: Bench) -> None:
    reader, writer = await connect(bench.url)
    writer.write_eof()

    assert await reader.read() == b""
    writer.close()


async def test_when_a_client_resets_then_the_server_goes_on(bench: Bench) -> None:
    for _ in range(5):
        _, writer = await connect(bench.url)
        writer.write(b"GET /a HTT")
        await writer.drain()
        writer.transport.abort()

    assert (await send(bench.url, PLAIN)).status == 200


async def test_when_the_answer_breaks_then_it_is_a_500_that_says_nothing(bench: Bench) -> None:
    """R57."""
    with structlog.testing.capture_logs() as lines:
        reply = await call(bench.url, "GET", "/broken")

    assert reply.status == 500
    assert b"secret-token" not in reply.body
    assert [line["event"] for line in lines] == ["probe.failed"]
    assert (await send(bench.url, PLAIN)).status == 200


# -- slow clients -------------------------------------------------------------------------------


async def test_when_a_request_takes_too_long_then_it_is_refused(bench: Bench) -> None:
    reader, writer = await connect(bench.url)
    await bench.until_open(1)
    for byte in b"GET /a HTTP":
        writer.write(bytes([byte]))
        await bench.clock.advance(READ_S / 20)
    assert bench.open_count == 1

    await bench.clock.advance(READ_S / 2)

    assert parse(await reader.read()).status == 408
    writer.close()


async def test_when_a_body_never_comes_then_it_is_refused(bench: Bench) -> None:
    reader, writer = await connect(bench.url)
    writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n")
    await bench.until_open(1)
    await bench.clock.advance(READ_S)

    assert parse(await reader.read()).status == 408
    writer.close()


async def test_when_a_client_does_not_end_then_it_is_not_waited_for(bench: Bench) -> None:
    reader, writer = await connect(bench.url)
    writer.write(PLAIN)
    assert parse(await reader.read()).status == 200
    assert bench.open_count == 1

    await bench.clock.advance(LINGER_S)

    await bench.until_open(0)
    writer.close()


async def test_when_a_client_does_not_read_then_it_is_let_go(bench: Bench) -> None:
    bench.body = b"x" * 50_000_000
    reader, writer = await connect(bench.url)
    writer.write(PLAIN)
    await bench.until_open(1)
    while not bench.served:
        await SYSTEM_CLOCK.sleep(0.001)

    await bench.clock.advance(WRITE_S)

    await bench.until_open(0)
    reader.feed_eof()
    writer.close()


async def test_when_slow_clients_crowd_in_then_a_probe_is_still_answered(bench: Bench) -> None:
    """A slow loris on a pod's network must not get the pod killed."""
    slow = [await connect(bench.url) for _ in range(MAX_CONNECTIONS)]
    for _, writer in slow:
        writer.write(b"GET / HTTP/1.1\r\n")
    await bench.until_open(MAX_CONNECTIONS)

    replies = [await send(bench.url, PLAIN) for _ in range(5)]

    assert [reply.status for reply in replies] == [200] * 5
    assert bench.open_count <= MAX_CONNECTIONS
    with suppress(ConnectionError):
        assert await slow[0][0].read() == b"", "the first to come is the first to go"
    assert not slow[-1][0].at_eof()
    for _, writer in slow:
        writer.close()


async def test_when_many_ask_at_once_then_all_are_answered(bench: Bench) -> None:
    replies = await asyncio.gather(
        *(call(bench.url, "GET", f"/{number}") for number in range(MAX_CONNECTIONS // 2))
    )

    assert [reply.status for reply in replies] == [200] * (MAX_CONNECTIONS // 2)


async def test_when_it_closes_then_who_is_being_slow_does_not_keep_it() -> None:
    bench = Bench()
    bench.url = await bench.server.listen("health", "127.0.0.1", 0)
    _, writer = await connect(bench.url)
    await bench.until_open(1)
    closing = asyncio.create_task(bench.server.aclose())
    await bench.clock.advance(LINGER_S)
    await closing

    assert bench.open_count == 0
    with pytest.raises(ConnectionError):
        await connect(bench.url)
    await bench.server.aclose()
    writer.close()


# -- addresses ----------------------------------------------------------------------------------


async def test_when_the_port_is_taken_then_it_and_the_remedy_are_named(bench: Bench) -> None:
    port = int(bench.url.rpartition(":")[2])

    with pytest.raises(ConfigurationError, match=rf"health='127.0.0.1:{port}'.*another port"):
        await Server(bench._answer, bench.clock, log_failure).listen("health", "127.0.0.1", port)


async def test_when_the_address_is_not_ours_then_the_remedy_is_named() -> None:
    bench = Bench()

    with pytest.raises(ConfigurationError, match="this machine has no such address"):
        await bench.server.listen("health", "192.0.2.1", 0)


async def test_when_it_listens_on_a_socket_then_only_this_user_may_open_it(tmp_path: Path) -> None:
    bench = Bench()
    path = tmp_path / "pump.sock"
    bench.url = await bench.server.listen_at_path("control", path)
    assert path.stat().st_mode & 0o777 == 0o600

    assert (await send(bench.url, PLAIN)).status == 200

    await bench.server.aclose()
    assert not path.exists()


async def test_when_a_dead_process_left_its_socket_then_it_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "pump.sock"
    left = await asyncio.to_thread(server.bind, "control", path)
    left.close()
    assert path.exists()
    bench = Bench()

    bench.url = await bench.server.listen_at_path("control", path)

    assert (await send(bench.url, PLAIN)).status == 200
    await bench.server.aclose()


async def test_when_it_closes_then_its_path_is_free_before_anybody_could_take_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removed later, it may be the path of a process that has just begun to listen there."""
    path = tmp_path / "pump.sock"
    server = Bench().server
    await server.listen_at_path("control", path)
    listening = server._listening
    assert listening is not None
    listened: list[bool] = []
    unlink = Path.unlink

    def observed(self: Path, *, missing_ok: bool = False) -> None:
        listened.append(listening.is_serving())
        unlink(self, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", observed)
    await server.aclose()

    assert listened == [True]
    assert not path.exists()


async def test_when_a_live_process_listens_at_the_path_then_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "pump.sock"
    first, second = Bench(), Bench()
    first.url = await first.server.listen_at_path("control", path)

    with pytest.raises(ConfigurationError, match="another process listens there"):
        await second.server.listen_at_path("control", path)

    await second.server.aclose()
    assert path.exists(), "it is the other one's"
    assert (await send(first.url, PLAIN)).status == 200
    await first.server.aclose()


@pytest.mark.parametrize("what", ["file", "folder missing"])
async def test_when_the_path_cannot_be_had_then_the_remedy_is_named(
    tmp_path: Path, what: str
) -> None:
    path = tmp_path / "pump.sock" if what == "file" else tmp_path / "no" / "pump.sock"
    if what == "file":
        path.write_text("precious")

    with pytest.raises(ConfigurationError, match="name a path"):
        await Bench().server.listen_at_path("control", path)

    assert what != "file" or path.read_text() == "precious"


@BOTH_LOOPS
async def test_when_a_client_has_gone_before_its_answer_then_nothing_is_raised() -> None:
    """Law 7: uvloop, which `pump run` uses, raises for a write to a closed transport."""
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def answer(request: Request) -> Answer:
        asked.set()
        await may_answer.wait()
        return Answer(body=b"late", content_type="text/plain")

    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
    late = Server(answer, SYSTEM_CLOCK, log_failure)
    url = await late.listen("health", "127.0.0.1", 0)
    _, writer = await connect(url)
    writer.write(PLAIN)
    await asked.wait()
    client = writer.get_extra_info("socket")
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    [attending] = late._connections
    for _ in range(TURNS):
        await yield_to_loop()

    may_answer.set()
    await asyncio.wait([attending])
    await late.aclose()

    assert attending.exception() is None
    assert faults == []

"""A connection to the host that is lost at any moment: nothing is raised that is not ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from gateways.local import codec, wire
from gateways.local.client import LocalClient
from pump.clock import SYSTEM_CLOCK, yield_to_loop
from pump.errors import ConfigurationError, ConnectionFailed
from pump.message import Message
from pump.testing.virtual_clock import VirtualClock

from ..loops import BOTH_LOOPS

pytestmark = BOTH_LOOPS


class FakeHost:
    """Welcomes clients; hangs up at the first request, or answers that there are no queues."""

    def __init__(self, address: Path, *, hangs_up: bool) -> None:
        self.address = address
        self._hangs_up = hangs_up
        self._server: asyncio.Server | None = None
        self.asked: list[wire.Request] = []

    async def start(self) -> FakeHost:
        self._server = await asyncio.start_unix_server(self._serve, self.address)
        return self

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await wire.read_frame(reader)
        wire.write(writer, wire.PackedReply(0, b""))
        if self._hangs_up:
            # With something unread in its socket, which the other side sees as a reset.
            await reader.read(1)
            writer.transport.abort()
            return
        try:
            while True:
                request = wire.decode_request(await wire.read_frame(reader))
                self.asked.append(request)
                wire.write(writer, wire.PackedReply(request.number, wire.encode([])))
        except asyncio.IncompleteReadError:
            writer.close()


@pytest.fixture
async def hosts(tmp_path: Path) -> AsyncIterator[tuple[FakeHost, FakeHost]]:
    dying = await FakeHost(tmp_path / "1", hangs_up=True).start()
    living = await FakeHost(tmp_path / "2", hangs_up=False).start()
    yield dying, living
    dying.close()
    living.close()


async def test_when_the_host_dies_at_any_moment_then_requests_wait_for_the_next_one(
    hosts: tuple[FakeHost, FakeHost],
) -> None:
    """Law 7: asked before, while and after the connection breaks."""
    lost = asyncio.Event()
    client = LocalClient("me", SYSTEM_CLOCK, lost.set)
    assert await client.connect(hosts[0].address)
    asking = []
    while not lost.is_set():
        asking.append(asyncio.create_task(client.queues()))
        await yield_to_loop()
    asking.append(asyncio.create_task(client.queues()))
    await yield_to_loop()

    assert await client.connect(hosts[1].address)

    assert await asyncio.gather(*asking) == [[]] * len(asking)
    await client.aclose()


async def test_when_a_receive_is_cancelled_while_the_host_dies_then_it_is_cancelled_and_taken_back(
    hosts: tuple[FakeHost, FakeHost],
) -> None:
    """Law 6, R4: the next host is told to take back what each of them may have leased."""
    lost = asyncio.Event()
    client = LocalClient("me", SYSTEM_CLOCK, lost.set)
    assert await client.connect(hosts[0].address)
    receiving = []
    while not lost.is_set():
        task = asyncio.create_task(client.receive("q", max_count=1, wait_s=60, lease_s=30))
        receiving.append(task)
        await yield_to_loop()
        task.cancel()
        await yield_to_loop()

    await asyncio.wait(receiving)
    assert all(task.cancelled() for task in receiving)

    assert await client.connect(hosts[1].address)
    await client.queues()
    taken_back = [each for each in hosts[1].asked if isinstance(each, wire.Cancel)]
    assert len(taken_back) == len(receiving)
    await client.aclose()


async def test_when_a_name_cannot_travel_then_it_is_said_so_and_asked_of_no_host(
    hosts: tuple[FakeHost, FakeHost],
) -> None:
    """Else each new host would be asked it, and the connection to none of them come about."""
    lost = asyncio.Event()
    client = LocalClient("me", SYSTEM_CLOCK, lost.set)
    assert await client.connect(hosts[0].address)
    with pytest.raises(ConfigurationError, match="surrogate"):
        await client.purge("jobs\ud800")
    known = asyncio.create_task(client.queues())
    await lost.wait()
    between = asyncio.create_task(client.purge("jobs\ud800"))
    await yield_to_loop()

    assert await client.connect(hosts[1].address)

    with pytest.raises(ConfigurationError, match="surrogate"):
        await between
    assert await known == []
    assert await client.queues() == []
    await client.aclose()


async def test_when_the_socket_is_not_ours_then_the_error_says_so(tmp_path: Path) -> None:
    """Law 7."""

    async def refuse(address: object) -> None:
        raise PermissionError(13, "Permission denied")

    client = LocalClient("me", SYSTEM_CLOCK, lambda: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "open_unix_connection", refuse)
        with pytest.raises(ConnectionFailed, match="the user who hosts"):
            await client.connect(tmp_path / "s")


@pytest.mark.parametrize(
    ("welcome", "expires_at_s", "ends_at_s"),
    [
        pytest.param(wire.encode(1_000.0), 1_030.0, 1_030.0, id="one clock"),
        pytest.param(wire.encode(9_000.0), 9_030.0, 1_030.0, id="a clock of its own"),
        pytest.param(b"", None, 1_050.0, id="an older host"),
    ],
)
async def test_when_an_answer_lies_unread_then_its_lease_is_no_longer_for_that(
    welcome: bytes, expires_at_s: float | None, ends_at_s: float, tmp_path: Path
) -> None:
    """Law 3: a process that stood still does not start what another has handled."""
    clock = VirtualClock()

    async def hand_out(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await wire.read_frame(reader)
        wire.write(writer, wire.PackedReply(0, welcome))
        request = wire.decode_request(await wire.read_frame(reader))
        clock.stand_still(20)
        packed = codec.pack(Message(body=b"a"))
        handed = [packed, "r", 1, 30.0, 7, *([] if expires_at_s is None else [expires_at_s])]
        wire.write(writer, wire.PackedReply(request.number, wire.encode([handed])))
        writer.close()

    server = await asyncio.start_unix_server(hand_out, tmp_path / "s")
    client = LocalClient("me", clock, lambda: None)
    assert await client.connect(tmp_path / "s")

    [delivery] = await client.receive("q", max_count=1, wait_s=60, lease_s=30)

    assert delivery.lease_expires_at_s == ends_at_s
    await client.aclose()
    server.close()


def test_when_the_peer_is_an_older_release_then_each_still_reads_the_other() -> None:
    """Fields are added at the end: an older one does not look at them, or has their default."""
    older = msgspec.msgpack.encode(("Extend", 1, "q", ["r"], 30.0))

    assert wire.decode_request(older) == wire.ExtendRequest(1, "q", ["r"], 30.0, None)
    newer = msgspec.msgpack.encode((*msgspec.msgpack.decode(older), 1_000.0, "and more"))
    assert wire.decode_request(newer) == wire.ExtendRequest(1, "q", ["r"], 30.0, 1_000.0)

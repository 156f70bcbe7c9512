"""Remote requests: carried out once, however often they are asked, whoever hosts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateways._engine.engine import QueueEngine
from gateways._sqlite.database import Database
from gateways.local import codec, wire
from gateways.local.dispatcher import RequestDispatcher
from gateways.local.journal import SCHEMA, SqliteJournal, recover
from pump.errors import InvalidReceipt, PumpError, QueueNotFound, StorageFailed
from pump.message import Message
from pump.outcome import ABANDON, ACK, Action, Defer
from pump.subscription import MakeChannels, QueueSpec
from pump.testing.virtual_clock import VirtualClock

OWNER = "client-1"


class Hosting:
    """An engine on a file, as a host has it, without the socket."""

    def __init__(self, path: Path, clock: VirtualClock) -> None:
        self._path = path
        self._clock = clock

    async def start(self) -> None:
        self._database = await Database.open(self._path, SCHEMA)
        self._journal = SqliteJournal(self._database, self._clock)
        self.engine = QueueEngine(self._clock, self._journal)
        recovered = await recover(self.engine, self._database)
        self._journal.start()
        self.dispatcher = RequestDispatcher(self.engine, recovered.replies)

    async def ask(self, request: wire.Request) -> bytes:
        answer: asyncio.Future[wire.Answer] = asyncio.get_running_loop().create_future()
        self.dispatcher.submit(OWNER, request, answer.set_result)
        reply = await answer
        if isinstance(reply, wire.RemoteFailure):
            raise wire.unpack_failure(reply, "the host")
        return reply.result

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def stop(self) -> None:
        await self.dispatcher.aclose()
        self.engine.close()
        await self._journal.aclose()
        await self._database.close()


@pytest.fixture
async def host(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[Hosting]:
    host = Hosting(tmp_path / "queues.db", clock)
    await host.start()
    await host.engine.ensure(QueueSpec(name="orders"), MakeChannels.CREATE)
    yield host
    await host.stop()


def a_send(number: int, body: bytes = b"a", done_below: int = 0) -> wire.SendRequest:
    return wire.SendRequest(number, done_below, "orders", [codec.pack(Message(body=body))], 0.0)


def a_receive(number: int, *, is_repeat: bool = False) -> wire.Receive:
    return wire.Receive(number, "orders", 10, 0.0, 30.0, is_repeat)


async def visible(host: Hosting) -> int:
    [stats] = await host.engine.queues()
    return stats.visible


@pytest.mark.parametrize("restarts", [False, True])
async def test_when_a_send_is_asked_twice_then_it_is_stored_once(
    host: Hosting, restarts: bool
) -> None:
    """T3: its answer got lost, with or without its host."""
    await host.ask(a_send(1))
    if restarts:
        await host.restart()

    await host.ask(a_send(1))

    assert await visible(host) == 1


@pytest.mark.parametrize("restarts", [False, True])
async def test_when_a_settlement_is_asked_twice_then_the_answer_is_the_same(
    host: Hosting, restarts: bool
) -> None:
    await host.ask(a_send(1))
    [handed] = wire.decode_handed(await host.ask(a_receive(2)))
    settle = wire.SettleRequest(3, 0, "orders", [handed.receipt, "unknown"], [None, None])
    first = await host.ask(settle)
    if restarts:
        await host.restart()

    second = await host.ask(settle)

    assert codec.unpack_positions(first) == codec.unpack_positions(second) == [1]
    # The same settlement as another request is refused: the message is gone.
    other = wire.SettleRequest(4, 0, "orders", [handed.receipt], [None])
    assert codec.unpack_positions(await host.ask(other)) == [0]


@pytest.mark.parametrize("restarts", [False, True])
async def test_when_a_receive_is_repeated_then_it_gets_what_it_has_leased(
    host: Hosting, restarts: bool
) -> None:
    """R12: the message is neither hidden from its owner nor given to another."""
    await host.ask(a_send(1))
    first = wire.decode_handed(await host.ask(a_receive(2)))
    if restarts:
        await host.restart()

    again = wire.decode_handed(await host.ask(a_receive(2, is_repeat=True)))

    assert [(h.receipt, h.attempt) for h in again] == [(h.receipt, h.attempt) for h in first]
    assert wire.decode_handed(await host.ask(a_receive(3))) == []


async def test_when_a_served_receive_is_cancelled_then_its_messages_are_back(
    host: Hosting, clock: VirtualClock
) -> None:
    """R4."""
    await host.ask(a_send(1))
    await host.ask(a_receive(2))

    await host.ask(wire.Cancel(3, target=2))
    await clock.settle()

    [again] = wire.decode_handed(await host.ask(a_receive(4)))
    assert again.attempt == 1


async def test_when_answers_have_arrived_then_they_are_forgotten(host: Hosting) -> None:
    for number in range(1, 400):
        await host.ask(a_send(number, done_below=number))
    await host.restart()

    # Number 1 was answered long ago; its owner would never ask again.
    await host.ask(a_send(1))

    assert await visible(host) == 400


async def test_when_the_owner_leaves_then_its_leases_end_and_its_answers_are_forgotten(
    host: Hosting,
) -> None:
    await host.ask(a_send(1))
    await host.ask(a_receive(2))

    await host.ask(wire.Bye(3))
    await host.ask(a_send(1, b"again"))

    handed = wire.decode_handed(await host.ask(a_receive(4)))
    assert [h.attempt for h in handed] == [2, 1]


async def test_when_a_request_fails_then_the_error_travels(host: Hosting) -> None:
    with pytest.raises(QueueNotFound, match="nowhere"):
        await host.ask(wire.Peek(1, "nowhere", 1))


@pytest.mark.parametrize(
    "error",
    [QueueNotFound("q"), InvalidReceipt("q", "r"), StorageFailed("/path", "full")],
)
def test_when_an_error_travels_then_it_arrives_equal(error: PumpError) -> None:
    answer = wire.decode_answer(wire.encode(wire.failure(7, error)))

    assert isinstance(answer, wire.RemoteFailure)
    arrived = wire.unpack_failure(answer, "the host")
    assert (type(arrived), str(arrived)) == (type(error), str(error))


def test_when_an_unknown_error_travels_then_it_is_a_failed_connection() -> None:
    arrived = wire.unpack_failure(wire.RemoteFailure(1, "Hiccup", []), "the host")

    assert "Hiccup" in str(arrived)


def test_when_actions_travel_then_they_arrive_equal() -> None:
    actions: list[Action] = [ACK, ABANDON, Defer(0.0), Defer(2.5)]

    assert wire.unpack_actions(wire.pack_actions(actions)) == actions


def test_when_a_message_is_packed_then_it_is_unpacked_equal() -> None:
    """R1."""
    message = Message(
        body=b"\x00\xff",
        type="T",
        content_type="x/y",
        correlation_id="c",
        reply_to="r",
        group="g",
        deduplication_id="d",
        created_at_s=1.5,
        headers={"ž": "ů"},
    )

    assert codec.unpack(codec.pack(message)) == message

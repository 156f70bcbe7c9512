"""The embedded broker: frames of other processes, packed messages, and its file."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from msgspec.structs import replace

from gateways._engine.engine import QueueEngine
from gateways._engine.record import EngineSettings
from gateways.local import LocalGateway, codec, wire
from gateways.local.dispatcher import RequestDispatcher
from pump import errors
from pump.errors import MappingError, StorageFailed
from pump.message import Message
from pump.stores.packing import pack, unpack
from pump.subscription import MakeChannels, QueueSpec
from pump.testing.virtual_clock import VirtualClock

from ..gateways.sqs.messages import messages
from .exploring import Effort, Target, each_of, explore
from .mutations import hostile_values, mutated

WHOLE = Message(body=b"\x00\xff", id="m", type="t", group="g", created_at_s=1.5, headers={"a": "b"})
HALF = replace(WHOLE, headers={"a": "\ud800"})
PACKED = [pack(WHOLE), pack(HALF), pack(Message(body=b"", id="m"))]
SETTINGS = codec.pack_settings(
    EngineSettings(name="q", max_receive_count=2, dead_letter_queue="dead")
)
REQUESTS: list[wire.Request] = [
    wire.SendRequest(1, 0, "q", PACKED, 0.0),
    wire.Receive(2, "q", 10, 0.0, 30.0),
    wire.SettleRequest(3, 0, "q", ["r", "s"], [None, 5.0]),
    wire.ExtendRequest(4, "q", ["r"], 30.0),
    wire.Declare(5, SETTINGS, MakeChannels.CREATE, False),
    wire.Stats(6),
    wire.Peek(7, "q", 10),
    wire.PurgeRequest(8, "q"),
    wire.Cancel(9, 2),
    wire.Bye(10),
    wire.Hello("me", wire.PROTOCOL),
]
ANSWERS: list[wire.Answer] = [
    wire.PackedReply(1, b""),
    wire.PackedReply(2, wire.encode([wire.Handed(PACKED[0], "r", 1, 29.5, 7)])),
    wire.failure(3, StorageFailed("path", "full")),
    wire.RemoteFailure(4, "MappingError", ["t", "detail"]),
]
HANDED = wire.encode([wire.Handed(PACKED[0], "r", 1, 29.5, 7)])
COUNTS = wire.encode([wire.Count("q", 1, 2, 3, None)])
ERROR_NAMES = st.sampled_from(["SendFailed", "Throttled", "PumpError", "attrs", "__doc__", ""])

texts = st.sampled_from(["q", "dead", "missing", "", "../q", "x" * 300]) | st.text(max_size=5)
whole = st.integers(0, 20) | st.integers(0, 20) | st.integers(-(2**63), 2**64 - 1)
some_seconds = st.sampled_from([0.0, 0.5, 30.0, -1.0, 1e9])
seconds = some_seconds | some_seconds | st.floats()
packed = st.sampled_from(PACKED) | mutated(PACKED)
# As they travel: what a struct refuses to be made of must be refused when it is read.
frames = st.one_of(
    st.tuples(st.just("Send"), whole, whole, texts, st.lists(packed, max_size=3), seconds),
    st.tuples(st.just("Receive"), whole, texts, whole, seconds, seconds, st.booleans()),
    st.tuples(
        *(st.just("Settle"), whole, whole, texts, st.lists(texts, max_size=3)),
        st.lists(st.none() | seconds, max_size=3),
    ),
    st.tuples(st.just("Extend"), whole, texts, st.lists(texts, max_size=3), seconds),
    st.tuples(
        *(st.just("Declare"), whole, mutated([SETTINGS]) | st.just(SETTINGS)),
        *(st.sampled_from([*MakeChannels]) | texts, st.booleans()),
    ),
    st.tuples(st.just("Peek"), whole, texts, whole),
    st.tuples(st.just("Purge"), whole, texts),
    st.tuples(st.just("Cancel"), whole, whole),
    st.tuples(st.sampled_from(["Stats", "Bye"]), whole),
).map(wire.encode)


def decoding(decode: Callable[[bytes], object]) -> Callable[[bytes], object]:
    """The errors that `server` and `client` expect of a frame, as one that they do not raise."""

    def feed(frame: bytes) -> object:
        try:
            return decode(frame)
        except wire.UNREADABLE as error:
            raise MappingError("frame", str(error)) from error

    return feed


def carry_out(asked: list[bytes]) -> None:
    """Every request has one answer, and no failure is one that nobody thought of."""

    async def run() -> None:
        faults: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        clock = VirtualClock()
        engine = QueueEngine(clock)
        await engine.ensure(QueueSpec(name="q"), MakeChannels.CREATE)
        dispatcher = RequestDispatcher(engine, {})
        answers: list[wire.Answer] = []
        submitted: list[wire.Request] = []
        for frame in asked:
            with suppress(*wire.UNREADABLE):
                submitted.append(wire.decode_request(frame))
                dispatcher.submit("me", submitted[-1], answers.append)
            await clock.settle()
        await clock.advance(60)
        await dispatcher.aclose()
        assert not faults, faults
        # A receive may wait for longer, and a cancel may be of any of them.
        if not any(isinstance(each, wire.Cancel) for each in submitted):
            told = [each for each in submitted if not isinstance(each, wire.Receive)]
            assert len(answers) >= len(told)
        for answer in answers:
            if isinstance(answer, wire.RemoteFailure):
                assert str(wire.unpack_failure(answer, "host"))
        # Nothing that was asked keeps the broker from going on.
        await engine.ensure(QueueSpec(name="after"), MakeChannels.CREATE)
        await engine.send("after", [WHOLE])
        assert len(await engine.receive("after", max_count=1, wait_s=0, lease_s=1)) == 1
        await clock.advance(60)
        engine.close()
        assert not faults, faults

    asyncio.run(run())


def _framed(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def round_trip(message: Message) -> None:
    assert unpack(pack(message)) == message


TARGETS = [
    Target(name="packed: noise", inputs=st.binary(), feed=unpack, refusals=(MappingError,)),
    Target(
        name="packed: spoilt",
        inputs=mutated(PACKED),
        feed=unpack,
        refusals=(MappingError,),
        share=2,
    ),
    Target(name="packed: there and back", inputs=messages, feed=round_trip),
    Target(
        name="settings: spoilt",
        inputs=mutated([SETTINGS]) | st.binary(),
        feed=codec.unpack_settings,
        refusals=(MappingError,),
        share=2,
    ),
    Target(
        name="lease members: spoilt",
        inputs=mutated([b"\x92\x93\x01\x02\xa1r\x93\x02\x01\xa0"]) | st.binary(),
        feed=lambda packed: codec.unpack_members("b", packed),
        refusals=(MappingError,),
    ),
    Target(
        name="request frames: spoilt",
        inputs=mutated([wire.encode(request) for request in REQUESTS]) | st.binary(),
        feed=decoding(wire.decode_request),
        refusals=(MappingError,),
        share=2,
    ),
    Target(
        name="answer frames: spoilt",
        inputs=mutated([wire.encode(answer) for answer in ANSWERS]) | st.binary(),
        feed=decoding(wire.decode_answer),
        refusals=(MappingError,),
        share=2,
    ),
    *(
        Target(
            name=f"{name}: spoilt",
            inputs=mutated([seed]) | st.binary(),
            feed=decoding(decode),
            refusals=(MappingError,),
        )
        for name, decode, seed in [
            ("deliveries", wire.decode_handed, HANDED),
            ("counts", wire.decode_counts, COUNTS),
            ("list of packed", wire.decode_packed, wire.encode(PACKED)),
            ("number", wire.decode_number, b"\xcd\x01\x00"),
            ("refused positions", codec.unpack_positions, b"\x92\x01\x02"),
        ]
    ),
    Target(
        name="failures: anything",
        inputs=st.builds(
            wire.RemoteFailure,
            whole,
            ERROR_NAMES | st.sampled_from(sorted(vars(errors))),
            st.lists(hostile_values, max_size=4),
        ),
        feed=lambda failure: str(wire.unpack_failure(failure, "host")),
        share=2,
    ),
    Target(name="requests: carried out", inputs=st.lists(frames, max_size=5), feed=carry_out),
]


@each_of(TARGETS)
def test_when_another_process_says_anything_then_it_is_understood_or_refused(
    target: Target, effort: Effort
) -> None:
    """Nobody's frame, and no spoilt byte on the disk, does harm to anybody else."""
    explore(target, effort)


def test_when_a_client_sends_anything_then_the_host_goes_on(effort: Effort, tmp_path: Path) -> None:
    """Over the real socket; another client is served after each."""
    valid = [wire.frame(request) for request in REQUESTS]
    hello = wire.frame(wire.Hello("me", wire.PROTOCOL))
    said = st.builds(
        lambda greeting, rest: greeting + rest,
        st.sampled_from([hello, b""]),
        mutated([b"".join(valid), *valid]) | st.binary() | frames.map(_framed),
    )

    async def talk(data: bytes) -> None:
        address = str(tmp_path / "engine.sock")
        reader, writer = await asyncio.open_unix_connection(address)
        writer.write(data)
        writer.write_eof()
        while await reader.read(65_536):
            pass
        writer.close()

    with asyncio.Runner() as runner:
        faults: list[dict[str, Any]] = []
        runner.get_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        host, other = LocalGateway(tmp_path), LocalGateway(tmp_path)
        runner.run(host.open())
        runner.run(other.open())
        admin = other.admin()
        runner.run(admin.ensure(QueueSpec(name="ours"), MakeChannels.CREATE))

        def feed(data: bytes) -> None:
            runner.run(talk(data))
            runner.run(other.producer("ours").send([WHOLE]))
            assert runner.run(admin.purge("ours")) == 1
            assert not faults, faults

        try:
            explore(Target(name="socket", inputs=said, feed=feed, share=0.5), effort)
        finally:
            runner.run(other.aclose())
            runner.run(host.aclose())


def _spoil(path: Path, blobs: dict[str, bytes]) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE queues SET settings = ?", [blobs["settings"]])
        connection.execute("UPDATE messages SET packed = ?", [blobs["packed"]])
        connection.execute("UPDATE leases SET members = ?", [blobs["members"]])
    connection.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The file of a broker that died while a message was leased."""

    async def fill() -> None:
        gateway = LocalGateway(tmp_path)
        await gateway.open()
        await gateway.admin().ensure(QueueSpec(name="q"), MakeChannels.CREATE)
        await gateway.producer("q").send([WHOLE])
        await gateway.aclose()

    asyncio.run(fill())
    members = b"\x91\x93\x01\x01\xa1r"
    with sqlite3.connect(tmp_path / "queues.db") as connection:
        connection.execute("INSERT INTO leases VALUES ('b', 'q', 'me', 1, 9e9, ?)", [members])
    connection.close()
    return tmp_path


def test_when_a_row_is_spoilt_then_the_folder_is_refused_or_read(
    effort: Effort, data: Path
) -> None:
    """What cannot be read stays in the file for a person to look at."""
    blobs = st.fixed_dictionaries(
        {
            "settings": st.just(SETTINGS) | mutated([SETTINGS]),
            "packed": st.just(PACKED[0]) | mutated(PACKED),
            "members": st.just(b"\x91\x93\x01\x01\xa1r") | mutated([b"\x91\x93\x01\x01\xa1r"]),
        }
    )

    async def open_once() -> None:
        gateway = LocalGateway(data)
        try:
            await gateway.open()
        finally:
            await gateway.aclose()

    def feed(blobs: dict[str, bytes]) -> None:
        _spoil(data / "queues.db", blobs)
        asyncio.run(open_once())

    target = Target(name="file", inputs=blobs, feed=feed, refusals=(StorageFailed,), share=0.3)
    explore(target, effort)

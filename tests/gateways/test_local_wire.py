"""What a host or a client cannot read is refused, and hurts nobody else."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import msgspec
import pytest

from gateways.local import LocalGateway, codec, wire
from gateways.local.client import LocalClient
from gateways.local.gateway import from_url
from pump.clock import SYSTEM_CLOCK
from pump.errors import (
    ConfigurationError,
    ConnectionFailed,
    MappingError,
    SendFailed,
    StorageFailed,
)
from pump.message import Message
from pump.subscription import MakeChannels, QueueSpec
from pump.testing.virtual_clock import VirtualClock

from .conftest import OpenLocal

NAN = float("nan")


@pytest.mark.parametrize(
    "fields",
    [
        ("Receive", 1, "orders", 10, 0.0, NAN),
        ("Receive", 1, "orders", -1, 0.0, 30.0),
        ("Send", 2**63, 0, "orders", [], 0.0),
        ("Send", 1, 0, "orders", [], float("inf")),
        ("Settle", 1, 0, "orders", ["r", "s"], [None]),
        ("Declare", 1, b"", "perhaps", False),
        ("Hello", "../engine", 1),
        ("Hello", "x" * 300, 1),
    ],
)
def test_when_a_request_cannot_be_carried_out_then_it_is_not_read(
    fields: tuple[object, ...],
) -> None:
    """A lease that ends at NaN keeps all others from ending, and a number that SQLite does not
    hold fails the writes of everybody.
    """
    with pytest.raises(wire.UNREADABLE):
        wire.decode_request(msgspec.msgpack.encode(fields))


@pytest.mark.parametrize(
    "frame", [b"\xff", b"\x92\xa5Stats\xa1\xff", b"\x93\xa5Stats\x01" + b"\x91" * 10_000, b""]
)
async def test_when_a_frame_is_garbage_then_only_its_sender_is_hung_up_on(
    frame: bytes, open_local: OpenLocal, tmp_path: Path
) -> None:
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
    host = await open_local(SYSTEM_CLOCK)
    await host.admin().ensure(QueueSpec(name="orders"), MakeChannels.CREATE)

    reader, writer = await asyncio.open_unix_connection(tmp_path / "engine.sock")
    writer.write(wire.frame(wire.Hello("stranger", wire.PROTOCOL)))
    writer.write(len(frame).to_bytes(4, "big") + frame)
    await reader.read()
    writer.close()

    other = await open_local(SYSTEM_CLOCK)
    await other.producer("orders").send([Message(body=b"x")])
    assert (await other.admin().stats("orders")).visible == 1
    assert faults == []


@pytest.mark.parametrize("answer", [b"\xc1", b"\xa1\xff"], ids=["no frame", "not UTF-8"])
async def test_when_the_hosts_answer_cannot_be_read_then_whoever_waits_is_told(
    answer: bytes, tmp_path: Path
) -> None:
    """Nobody waits for ever for an answer that has come."""

    async def garble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await wire.read_frame(reader)
        writer.write(wire.frame(wire.PackedReply(0, b"")))
        await wire.read_frame(reader)
        writer.write(len(answer).to_bytes(4, "big") + answer)
        writer.close()

    lost = asyncio.Event()
    server = await asyncio.start_unix_server(garble, tmp_path / "s")
    client = LocalClient("me", VirtualClock(), lost.set)
    assert await client.connect(tmp_path / "s")

    with pytest.raises(ConnectionFailed, match="cannot be read"):
        await client.queues()

    await lost.wait()
    await client.aclose()
    server.close()


@pytest.mark.parametrize(
    "failure",
    [
        wire.RemoteFailure(1, "StorageFailed", []),
        wire.RemoteFailure(1, "Throttled", ["q", "soon"]),
        wire.failure(1, SendFailed("q", (("m", ValueError()),))),
    ],
)
def test_when_an_error_travels_with_other_fields_then_its_name_arrives(
    failure: wire.RemoteFailure,
) -> None:
    error = wire.unpack_failure(failure, "host")

    assert failure.error in str(error)


@pytest.mark.parametrize(
    "packed",
    [
        b"\xc1",
        b"\x81\xa4name\xa1\xff",
        msgspec.msgpack.encode({"name": "q", "max_receive_count": 1}),
        msgspec.msgpack.encode(
            {"name": "q", "max_receive_count": 1, "dead_letter_queue": "q"},
        ),
    ],
)
def test_when_settings_cannot_work_then_they_are_not_unpacked(packed: bytes) -> None:
    with pytest.raises(MappingError):
        codec.unpack_settings(packed)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE messages SET queue = 'elsewhere'",
        "UPDATE queues SET settings = x'81a46e616d65a1ff'",
    ],
)
async def test_when_a_row_cannot_be_read_then_the_folder_is_refused_and_left_as_it_is(
    statement: str, tmp_path: Path
) -> None:
    """Going on without a queue would be losing its messages."""
    gateway = LocalGateway(tmp_path)
    await gateway.open()
    await gateway.admin().ensure(QueueSpec(name="orders"), MakeChannels.CREATE)
    await gateway.producer("orders").send([Message(body=b"x")])
    await gateway.aclose()
    with sqlite3.connect(tmp_path / "queues.db") as connection:
        connection.execute(statement)
    connection.close()

    with pytest.raises(StorageFailed, match="nothing was changed"):
        await gateway.open()

    with sqlite3.connect(tmp_path / "queues.db") as connection:
        assert connection.execute("SELECT count(*) FROM messages").fetchone() == (1,)
    connection.close()


@pytest.mark.parametrize("size", ["²", "9" * 5_000, "-1", "1.5", ""])
def test_when_a_size_in_the_url_is_no_number_then_it_is_refused(size: str) -> None:
    """R56."""
    with pytest.raises(ConfigurationError):
        from_url(f"local://folder?max_bytes={size}")

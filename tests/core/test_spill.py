"""SqliteSpill and packing: durable, exclusive, and honest about a broken file (T1)."""

from __future__ import annotations

import asyncio
import pickle
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
import structlog
from hypothesis import given, strategies as st

from pump import App, headers
from pump.errors import MappingError, StorageFailed
from pump.message import Message
from pump.stores.packing import pack, pack_checked, unpack
from pump.stores.postgres_nonces import PostgresNonces
from pump.stores.postgres_spill import PostgresSpill
from pump.stores.spill import MemorySpill, SpilledMessage, SpillStore, SqliteSpill
from pump.testing.builders import a_message
from pump.testing.virtual_clock import EPOCH_S
from tests.brokers.postgres_server import PostgresServer

TEXT = st.text(max_size=20)
MESSAGES = st.builds(
    Message,
    body=st.binary(max_size=100),
    id=TEXT,
    type=TEXT,
    content_type=TEXT,
    correlation_id=st.none() | TEXT,
    reply_to=st.none() | TEXT,
    group=st.none() | TEXT,
    deduplication_id=st.none() | TEXT,
    created_at_s=st.none() | st.floats(allow_nan=False),
    headers=st.dictionaries(TEXT, TEXT, max_size=4),
)


def spilled(id_: str, *, at_s: float = EPOCH_S, destination: str = "dead") -> SpilledMessage:
    return SpilledMessage(
        id=id_, message=a_message(id=f"m-{id_}"), destination=destination, spilled_at_s=at_s
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "spill.db"


DURABLE = ["sqlite", pytest.param("postgres", marks=pytest.mark.broker)]
MakeSpill = Callable[[], SpillStore]


@pytest.fixture(params=["memory", *DURABLE])
def spill(request: pytest.FixtureRequest, path: Path) -> SpillStore:
    return spill_of(request, path)


@pytest.fixture(params=DURABLE)
def make(request: pytest.FixtureRequest, path: Path) -> MakeSpill:
    """Makes spills that share what they keep."""
    return lambda: spill_of(request, path)


def spill_of(request: pytest.FixtureRequest, path: Path) -> SpillStore:
    match request.param:
        case "memory":
            return MemorySpill()
        case "sqlite":
            return SqliteSpill(path)
        case _:
            return PostgresSpill(request.getfixturevalue("postgres_schema"), time_of="caller")


async def test_when_messages_are_spilled_then_they_wait_in_order_until_removed(
    spill: SpillStore,
) -> None:
    first, second, third = spilled("1", at_s=1), spilled("2", at_s=2), spilled("3", at_s=3)
    for each in (first, second, third):
        await spill.put(each)
    assert await spill.all() == [first, second, third]

    await spill.remove(["2", "no such"])

    assert await spill.all() == [first, third]
    assert await spill.claim(now_s=10, lease_s=5, most=1) == [first]


async def test_when_a_spill_is_repeated_then_it_is_one(spill: SpillStore) -> None:
    await spill.put(spilled("1"))
    await spill.put(spilled("1"))

    assert len(await spill.all()) == 1


@given(MESSAGES)
def test_when_a_message_is_packed_then_unpacking_gives_it_back(message: Message) -> None:
    assert unpack(pack(message)) == message


@pytest.mark.parametrize("packed", [b"", b"\xc1", b"\x91\x01", b"not msgpack"])
def test_when_bytes_are_no_packed_message_then_that_is_a_mapping_error(packed: bytes) -> None:
    with pytest.raises(MappingError, match="unreadable"):
        unpack(packed)


def test_when_a_message_was_packed_by_a_later_version_then_it_is_refused() -> None:
    packed = pack(a_message())
    assert packed[1] == 1

    with pytest.raises(MappingError, match="version 3 is not known"):
        unpack(packed[:1] + b"\x03" + packed[2:])


async def test_when_a_put_has_returned_then_another_process_would_find_it(make: MakeSpill) -> None:
    """T1: durable before the original is removed."""
    message = a_message(
        b"\x00\xff",
        type="Order",
        correlation_id="c",
        group="g",
        deduplication_id="d",
        created_at_s=1.5,
        headers={"a": "ä"},
    )
    put = SpilledMessage(message=message, destination="dead", spilled_at_s=7.5)
    await make().put(put)

    assert await make().all() == [put]
    assert await make().count() == 1


async def test_when_nothing_was_spilled_then_reading_makes_no_file(path: Path) -> None:
    """Declaring and looking perform no I/O worth the name."""
    spill = SqliteSpill(path)

    assert await spill.all() == ()
    assert await spill.claim(now_s=0, lease_s=1, most=1) == ()

    assert not path.parent.exists()
    assert spill.path == path


async def test_when_one_store_claims_then_another_gets_only_the_rest(make: MakeSpill) -> None:
    one, other = make(), make()
    for number in range(5):
        await one.put(spilled(str(number), at_s=number))

    first = await one.claim(now_s=100, lease_s=30, most=3)
    second = await other.claim(now_s=101, lease_s=30, most=3)
    third = await one.claim(now_s=102, lease_s=30, most=3)

    assert [each.id for each in first] == ["0", "1", "2"]
    assert [each.id for each in second] == ["3", "4"]
    assert third == []


async def test_when_a_claim_has_ended_then_another_store_may_have_it(make: MakeSpill) -> None:
    one, other = make(), make()
    await one.put(spilled("1"))
    await one.claim(now_s=100, lease_s=30, most=10)

    assert await other.claim(now_s=129.9, lease_s=30, most=10) == []
    assert len(await other.claim(now_s=130, lease_s=30, most=10)) == 1


async def test_when_the_wall_clock_was_set_back_then_a_claim_lasts_a_lease_at_most(
    make: MakeSpill,
) -> None:
    """T1, T6: that of a process that is gone, made a day later than it is now."""
    spill = make()
    await spill.put(spilled("1"))
    await spill.claim(now_s=EPOCH_S + 86_400, lease_s=30, most=10)

    assert await spill.claim(now_s=EPOCH_S, lease_s=30, most=10) == []

    assert await spill.claim(now_s=EPOCH_S + 30, lease_s=30, most=10) == [spilled("1")]


async def test_when_a_spilled_message_has_changed_on_the_disk_then_it_says_so(path: Path) -> None:
    """R26, T1: it goes on its way, for its original is deleted, and is no message as sent."""
    spill = SqliteSpill(path)
    for id_ in ("1", "2"):
        await spill.put(spilled(id_))
    stored = pack_checked(spilled("2").message)
    flipped = stored.replace(b"{}", b"{|")
    assert flipped != stored
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE spilled SET message = ? WHERE id = '2'", (flipped,))

    with structlog.testing.capture_logs() as lines:
        whole, changed = await spill.all()

    assert whole == spilled("1")
    assert "its checksum is" in changed.message.headers[headers.CORRUPTED]
    assert [line["event"] for line in lines] == ["message.corrupted"]


async def test_when_an_older_release_spilled_then_its_rows_are_read(path: Path) -> None:
    spill = SqliteSpill(path)
    await spill.put(spilled("1"))
    with closing(sqlite3.connect(path)) as database, database:
        packed = pack(spilled("1").message)
        database.execute("UPDATE spilled SET message = ?", (packed,))

    assert await spill.all() == [spilled("1")]


async def test_when_many_claim_at_once_then_each_message_goes_to_one(make: MakeSpill) -> None:
    stores = [make() for _ in range(8)]
    for number in range(40):
        await stores[0].put(spilled(str(number)))

    claims = await asyncio.gather(*(store.claim(now_s=0, lease_s=30, most=5) for store in stores))

    ids = [each.id for claim in claims for each in claim]
    assert len(ids) == len(set(ids)) == 40


@pytest.mark.broker
async def test_when_a_row_in_postgres_has_changed_then_it_says_so_and_keeps_no_other_back(
    postgres_schema: str,
) -> None:
    """R26, T1: as in a file."""
    spill = PostgresSpill(postgres_schema)
    for id_ in ("1", "2", "3"):
        await spill.put(spilled(id_))
    change = "UPDATE @.spilled SET message = overlay(message PLACING %b FROM {}) WHERE id = %b"
    packed = pack_checked(spilled("2").message)
    at = packed.index(b"{}") + 2
    async with PostgresNonces(postgres_schema) as other:
        for place, octet, row in ((at, b"|", b"2"), (1, b"\xc1", b"3")):
            statement = other._tables.statement(change.format(place), "change")
            await other._tables.call(statement, octet, row)

    with structlog.testing.capture_logs() as lines:
        whole, changed = await spill.claim(now_s=0, lease_s=1, most=10)

    assert whole == spilled("1")
    assert "its checksum is" in changed.message.headers[headers.CORRUPTED]
    assert [line["event"] for line in lines] == ["message.corrupted", "spill.unreadable"]
    assert await spill.count() == 3


@pytest.mark.broker
async def test_when_texts_hold_what_postgres_has_no_characters_for_then_they_are_spilled_too(
    postgres_schema: str,
) -> None:
    """T1: NUL, and half a surrogate pair."""
    odd = SpilledMessage(
        id="a\0\ud800", message=a_message(id="\0"), destination="d\0\udfff", spilled_at_s=1.0
    )
    spill = PostgresSpill(postgres_schema)

    await spill.put(odd)

    assert await spill.all() == [odd]
    await spill.remove([odd.id])
    assert await spill.count() == 0


@pytest.mark.broker
async def test_when_the_database_cannot_be_reached_then_every_operation_says_so() -> None:
    spill = pickle.loads(pickle.dumps(PostgresSpill("postgres://me:s3cret@127.0.0.1:9/shop")))

    for operation in (
        spill.put(spilled("1")),
        spill.claim(now_s=0, lease_s=1, most=1),
        spill.remove(["1"]),
        spill.all(),
        spill.count(),
    ):
        with pytest.raises(StorageFailed) as caught:
            await operation
        assert caught.value.path == "postgres://127.0.0.1:9/shop"
        assert "s3cret" not in f"{caught.value}{spill!r}"


@pytest.mark.broker
async def test_when_an_app_names_a_database_then_its_spill_is_there(
    postgres: PostgresServer, postgres_schema: str
) -> None:
    """And no connection stays behind."""
    spill = App("memory://", spill=postgres_schema).spill
    assert isinstance(spill, PostgresSpill)
    await asyncio.gather(*(spill.put(spilled(str(number))) for number in range(50)))

    assert await spill.count() == 50
    with psycopg.connect(postgres.url()) as connection:
        asked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pumphouse'"
        while connection.execute(asked).fetchone() != (0,):
            connection.rollback()


@pytest.fixture
def corrupt(path: Path) -> Path:
    path.parent.mkdir()
    path.write_bytes(b"this is not a database, and never was one" * 100)
    return path


async def test_when_the_file_is_no_database_then_every_operation_says_so(corrupt: Path) -> None:
    spill = SqliteSpill(corrupt)

    for operation in (
        spill.put(spilled("1")),
        spill.claim(now_s=0, lease_s=1, most=1),
        spill.remove(["1"]),
        spill.all(),
    ):
        with pytest.raises(StorageFailed) as caught:
            await operation
        assert caught.value.path == str(corrupt)
        assert isinstance(caught.value.__cause__, sqlite3.Error)


async def test_when_the_folder_cannot_be_made_then_that_is_a_storage_failure(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(StorageFailed):
        await SqliteSpill(tmp_path / "file" / "spill.db").put(spilled("1"))


async def test_when_a_row_cannot_be_read_then_it_stays_and_keeps_no_other_back(path: Path) -> None:
    """T1: it is logged for a person, and the sweeper goes on with the rest."""
    spill = SqliteSpill(path)
    await spill.put(spilled("1"))
    await spill.put(spilled("2"))
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE spilled SET message = x'c1' WHERE id = '1'")
    connection.close()

    with structlog.testing.capture_logs() as logged:
        listed = await spill.all()
        claimed = await spill.claim(now_s=0, lease_s=1, most=10)

    assert [each.id for each in listed] == [each.id for each in claimed] == ["2"]
    assert {(each["event"], each["spilled_id"]) for each in logged} == {("spill.unreadable", "1")}
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT count(*) FROM spilled").fetchone()
    connection.close()
    assert rows == (2,)


async def test_when_a_put_is_cancelled_then_the_write_under_way_still_ends(make: MakeSpill) -> None:
    spill = make()
    putting = asyncio.create_task(spill.put(spilled("1")))
    await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop, so that the write has begun

    putting.cancel()
    await asyncio.wait([putting])

    assert putting.cancelled()
    while not await spill.all():
        pass


def test_when_a_message_holds_half_a_surrogate_pair_then_it_is_packed_like_any_other() -> None:
    """T1: SQS's packed headers can hold one, and what is rejected must be able to wait."""
    message = Message(
        body=b"\x00", id="\ud800", group="g\udfff", headers={"\udc00": "ü", "plain": "ascii"}
    )

    assert unpack(pack(message)) == message


@pytest.mark.parametrize(
    "packed",
    [
        pack(Message(body=b"", id="id")).replace(b"\xa2id", b"\xa2\xff\xff"),
        b"\xdc\x00\x0c" + pack(Message(body=b"", id="id"))[1:] + b"\x91" * 10_000,
        pack(Message(body=b"", id="\ud800")).replace(b"\xc3\xad", b"\xc4\x80"),
    ],
    ids=["text that is not UTF-8", "nested too deeply", "an escape that is none"],
)
def test_when_packed_bytes_are_spoilt_then_only_a_mapping_error_comes_out(packed: bytes) -> None:
    with pytest.raises(MappingError, match="unreadable"):
        unpack(packed)

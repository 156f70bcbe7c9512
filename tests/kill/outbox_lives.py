"""What the processes do that the outbox's kill tests kill: they post in transactions, and relay.

Run by `fork_server`. A life is connected to the ledger by a Unix socket: what it announces there
before it acts is known whatever becomes of it, and the broker that it sends to is at the other end.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import asyncpg
import attrs
import msgspec
import psycopg
import sqlalchemy
import uvloop
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from gateways.memory import MemoryGateway
from handlers import OnceOnly, PostgresInbox
from pump import App, Command
from pump.capabilities import Capabilities
from pump.errors import ConnectionFailed, GatewayError
from pump.message import Message
from pump.outbox import PostgresOutbox, postgres
from pump.outbox.store import Relayed, RowBatch, RowsWanted, WaitingRow
from pump.outbox.transactions import Writer
from pump.ports import AdminPort, ConsumerPort, ProducerPort
from pump.subscription import Subscription, retry

SCHEMA = "chaos"
LEASE = timedelta(seconds=2)
GROUPS = 3
"""A poster's; each in one queue."""
DATABASE_ERRORS = (
    psycopg.Error,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    DBAPIError,
    OSError,
)
CAPABILITIES = MemoryGateway().capabilities

# Loads what SQLAlchemy loads with the first engine: here once, and not in every life.
create_async_engine("postgresql+psycopg://")


class Placed(Command):
    id: str


class RolledBack(Exception):
    """The user's own change of mind."""


# The line to the ledger, and when it is cut.


class Line:
    """What this life says; it dies after the step of its plan, in the middle of the next."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(order["socket"])
        self._left: int = order["steps"]
        self._delay_s: float = order["delay_s"]
        self._asked: dict[int, asyncio.Future[bool]] = {}
        self._numbers = itertools.count()
        self._unread = b""
        self.say(life=order["number"])

    def say(self, **what: Any) -> None:
        """It is known from now on, whatever becomes of this process."""
        self._socket.sendall(json.dumps(what).encode() + b"\n")

    def step(self, name: str) -> None:
        """Something begins during which the process may be killed."""
        self.say(step=name)
        self._left -= 1
        if self._left == 0:
            if self._delay_s:
                threading.Thread(target=self._die, daemon=True).start()
            else:
                os.kill(os.getpid(), signal.SIGKILL)

    async def ask(self, **what: Any) -> bool:
        """Say something that is answered."""
        loop = asyncio.get_running_loop()
        if not self._asked:
            loop.add_reader(self._socket.fileno(), self._read)
        number = next(self._numbers)
        answered = self._asked[number] = loop.create_future()
        self.say(ask=number, **what)
        answer: bool = await answered
        return answer

    def _read(self) -> None:
        found = self._socket.recv(65_536)
        if not found:
            # The test is over.
            os._exit(0)
        *lines, self._unread = (self._unread + found).split(b"\n")
        for line in lines:
            number, answer = json.loads(line)
            answered = self._asked.pop(number)
            if not answered.done():
                answered.set_result(answer)

    def _die(self) -> None:
        time.sleep(self._delay_s)
        os.kill(os.getpid(), signal.SIGKILL)


# The broker, and the outbox with its steps told.


class LedgerGateway:
    """A broker that is not killed: it writes what it accepts into the ledger."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.capabilities: Capabilities = CAPABILITIES

    async def open(self) -> None:
        """Nothing to connect to."""

    async def aclose(self) -> None:
        """Nothing to close."""

    def consumer(self, subscription: Subscription) -> ConsumerPort:
        raise NotImplementedError

    def producer(self, queue: str) -> ProducerPort:
        return _LedgerProducer(self._line, queue)

    def admin(self) -> AdminPort:
        raise NotImplementedError


@attrs.frozen
class _LedgerProducer:
    line: Line
    queue: str

    async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
        self.line.step("broker call")
        ids = [msgspec.json.decode(each.body, type=Placed).id for each in messages]
        if not await self.line.ask(send=self.queue, ids=ids):
            raise ConnectionFailed("the ledger", "no answer")
        self.line.step("sent")
        return [each.id for each in messages]

    async def aclose(self) -> None:
        """Nothing to close."""


class SteppingOutbox(PostgresOutbox):
    """An outbox whose relay tells each step of a batch."""

    def __init__(self, url: str, line: Line) -> None:
        super().__init__(url)
        self._line = line

    @asynccontextmanager
    async def taken(self, wanted: RowsWanted) -> AsyncIterator[RowBatch | None]:
        self._line.step("take")
        async with super().taken(wanted) as batch:
            if batch is None:
                yield None
                return
            self._line.say(take=wanted.destination)
            self._line.step("taken")
            yield _SteppingBatch(batch, self._line)
            self._line.step("commit of the relay")
        self._line.say(settle=wanted.destination)


class _SteppingBatch:
    def __init__(self, batch: RowBatch, line: Line) -> None:
        self._batch = batch
        self._line = line
        self.rows: Sequence[WaitingRow] = batch.rows
        self.is_all = batch.is_all

    async def settle(self, relayed: Relayed) -> None:
        self._line.step("settle")
        await self._batch.settle(relayed)


# Planted bugs: the ledger must see them.


class DeletingFirst(SteppingOutbox):
    """Deletes what it is about to send."""

    @asynccontextmanager
    async def taken(self, wanted: RowsWanted) -> AsyncIterator[RowBatch | None]:
        async with PostgresOutbox.taken(self, wanted) as batch:
            if batch is not None:
                await batch.settle(Relayed(sent=batch.rows))
        if batch is None:
            yield None
            return
        self._line.say(take=wanted.destination)
        yield _Settled(batch)
        self._line.say(settle=wanted.destination)


class _Settled:
    def __init__(self, batch: RowBatch) -> None:
        self.rows: Sequence[WaitingRow] = batch.rows
        self.is_all = batch.is_all

    async def settle(self, relayed: Relayed) -> None:
        """Done before."""


class DepositingElsewhere(SteppingOutbox):
    """Writes posts on a connection of its own."""

    def writer(self, transaction: object) -> Writer:
        return super().writer(_ELSEWHERE[-1])


_ELSEWHERE: list[psycopg.Connection] = []


def _deposit_elsewhere(url: str) -> None:
    class Committing(psycopg.Connection):
        def execute(self, *given: Any, **more: Any) -> Any:
            done = super().execute(*given, **more)
            self.commit()
            return done

    _ELSEWHERE.append(Committing.connect(url))


def _lock_nothing() -> None:
    postgres._LOCK = postgres._LOCK.replace(  # type: ignore[misc]
        "pg_try_advisory_xact_lock(hashtextextended(%b, 2))", "length(%b) > 0"
    )


def _outbox(order: dict[str, Any], line: Line) -> SteppingOutbox:
    url = f"{order['url']}?schema={SCHEMA}"
    match order["bug"]:
        case "delete first":
            return DeletingFirst(url, line)
        case "deposit elsewhere":
            _deposit_elsewhere(order["url"])
            return DepositingElsewhere(url, line)
        case "lock nothing":
            _lock_nothing()
    return SteppingOutbox(url, line)


# The user's transactions, in the libraries of users.


@attrs.frozen
class Work:
    """A connection, as a library has it."""

    handle: Any
    execute: Callable[[str], Awaitable[object]]
    begin: Callable[[], AbstractAsyncContextManager[Any]]
    nested: Callable[[], AbstractAsyncContextManager[Any]]


@asynccontextmanager
async def _psycopg_async(url: str) -> AsyncIterator[Work]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as own:
        yield Work(own, lambda sql: own.execute(sql.encode()), own.transaction, own.transaction)


@asynccontextmanager
async def _psycopg_blocking(url: str) -> AsyncIterator[Work]:
    with psycopg.connect(url, autocommit=True) as own:

        async def execute(sql: str) -> None:
            own.execute(sql.encode())

        @asynccontextmanager
        async def begin() -> AsyncIterator[None]:
            with own.transaction():
                yield

        yield Work(own, execute, begin, begin)


@asynccontextmanager
async def _asyncpg(url: str) -> AsyncIterator[Work]:
    own = await asyncpg.connect(url)
    try:
        yield Work(own, own.execute, own.transaction, own.transaction)
    finally:
        own.terminate()


@asynccontextmanager
async def _sqlalchemy(url: str) -> AsyncIterator[Work]:
    engine = create_async_engine(url.replace("postgres:", "postgresql+psycopg:"))
    async with AsyncSession(engine) as own:
        yield Work(own, lambda sql: own.execute(sqlalchemy.text(sql)), own.begin, own.begin_nested)


LIBRARIES = {
    "psycopg": _psycopg_async,
    "psycopg, blocking": _psycopg_blocking,
    "asyncpg": _asyncpg,
    "SQLAlchemy": _sqlalchemy,
}


# Lives.


@attrs.frozen
class _Order:
    id: str
    group: str | None
    place: int

    def queue(self, queues: int) -> str:
        """A group is in one queue."""
        return f"orders-{sum((self.group or self.id).encode()) % queues}"


async def post(order: dict[str, Any], line: Line) -> None:
    """Transaction after transaction: some commit, some are rolled back, in part or in whole."""
    app = App(LedgerGateway(line), outbox=_outbox(order, line))
    app.route(Placed, "orders")
    chance = random.Random(order["number"])
    poster = _Poster(app, line, chance, order)
    async with app, LIBRARIES[order["library"]](order["url"]) as work:
        while True:
            await line.ask(may="post")
            await poster.transact(work)


class _Poster:
    def __init__(self, app: App, line: Line, chance: random.Random, order: dict[str, Any]) -> None:
        self._app = app
        self._line = line
        self._chance = chance
        self._slot: int = order["slot"]
        self._life: int = order["number"]
        self._queues: int = order["queues"]
        self._places = itertools.count(order["place"])

    async def transact(self, work: Work) -> None:
        kept, undone = self._orders(), self._orders() if self._chance.random() < 0.3 else []
        is_kept = self._chance.random() < 0.8
        both = [*kept, *undone]
        self._line.say(intend=[[each.id, each.group, each.place] for each in both])
        self._line.step("begin")
        with suppress(RolledBack):
            async with work.begin():
                # One transaction of a slot at a time, also when one is left of a life before.
                await work.execute(f"SELECT pg_advisory_xact_lock({self._slot})")
                with suppress(RolledBack):
                    if undone:
                        async with work.nested():
                            await self._place(work, undone)
                            raise RolledBack
                await self._place(work, kept)
                if not is_kept:
                    self._line.step("rollback")
                    raise RolledBack
                self._line.step("commit")
        gone = undone if is_kept else both
        self._line.say(told="rolled back", ids=[each.id for each in gone])
        if is_kept:
            self._line.say(told="committed", ids=[each.id for each in kept])

    async def _place(self, work: Work, orders: Sequence[_Order]) -> None:
        rows = ", ".join(f"('{each.id}')" for each in orders)
        await work.execute(f"INSERT INTO orders VALUES {rows}")
        self._line.step("post")
        for (group, queue), some in itertools.groupby(
            orders, lambda each: (each.group, each.queue(self._queues))
        ):
            await self._app.post_all(
                [Placed(id=each.id) for each in some],
                transaction=work.handle,
                group=group,
                queue=queue,
            )

    def _orders(self) -> list[_Order]:
        return [self._an_order() for _ in range(self._chance.randint(1, 3))]

    def _an_order(self) -> _Order:
        place = next(self._places)
        group = f"{self._slot}-{place % GROUPS}" if self._chance.random() < 0.7 else None
        return _Order(f"{self._life}-{place}", group, place)


async def relay(order: dict[str, Any], line: Line) -> None:
    """Relay until killed."""
    app = App(LedgerGateway(line), outbox=_outbox(order, line))
    async with app:
        line.step("up")
        await app.relay().run()


async def work(order: dict[str, Any], line: Line) -> None:
    """What `pump run` does: relay, and handle what arrives, each effect with its mark."""
    inbox = PostgresInbox(f"{order['url']}?schema={SCHEMA}")

    @asynccontextmanager
    async def on_its_own() -> AsyncIterator[psycopg.AsyncConnection]:
        async with await psycopg.AsyncConnection.connect(order["url"]) as connection:
            yield connection

    begin = on_its_own if order["bug"] == "no inbox" else inbox.transaction

    async def take(placed: Placed) -> None:
        line.step("handle")
        async with begin() as connection:
            await connection.execute("INSERT INTO effects VALUES (%s)", [placed.id])
            line.step("commit of the effect")
        line.say(handled=placed.id)
        line.step("handled")

    app = App(
        f"{order['url']}?schema={SCHEMA}_queues",
        outbox=_outbox(order, line),
        middleware=[OnceOnly(inbox, lease=LEASE)] if order["bug"] != "no inbox" else [],
    )
    app.register(Placed, take)
    for number in range(order["queues"]):
        app.subscribe(
            Subscription(queue=f"orders-{number}", request=Placed, lease=LEASE, failure=retry(None))
        )
    line.step("up")
    await app.serve(until_empty=order["until_empty"])
    await inbox.aclose()


ROLES: dict[str, Callable[[dict[str, Any], Line], Coroutine[Any, Any, None]]] = {
    "post": post,
    "relay": relay,
    "work": work,
}


class _DeafLine(Line):
    """One that leads nowhere."""

    def __init__(self) -> None:
        """Nothing to connect to."""

    def say(self, **what: Any) -> None:
        """Not heard."""

    def step(self, name: str) -> None:
        """Not followed by death."""

    async def ask(self, **what: Any) -> bool:
        await asyncio.sleep(0)
        return True


def warm_up(order: dict[str, Any]) -> None:
    """Live each kind of life for a moment."""
    for number, (role, library) in enumerate(order["warm_up"]):
        own = {
            **order,
            # Of no life, so that no connection of a bug's stays open in the fork server.
            "bug": None,
            "number": f"warm-{number}",
            "library": library,
            "slot": 0,
            "place": 1,
            "until_empty": False,
        }
        with suppress(TimeoutError):
            uvloop.run(asyncio.wait_for(ROLES[role](own, _DeafLine()), 0.3))


def live(order: dict[str, Any]) -> None:
    """One life. It ends by a kill, or with the server that it needs."""
    line = Line(order)
    with suppress(*DATABASE_ERRORS, GatewayError):
        uvloop.run(ROLES[order["role"]](order, line))

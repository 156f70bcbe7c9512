"""The consumer and producer ports of one queue, and how what was received is settled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from pump.capabilities import Capabilities, OrderingMode
from pump.clock import Clock
from pump.errors import (
    GatewayError,
    InvalidReceipt,
    MessageTooLarge,
    PumpError,
    SendFailed,
    SessionLockLost,
)
from pump.message import Delivery, Message
from pump.outcome import ABANDON, Abandon, Action, Defer, Refusal, Settlement
from pump.postgres.arrays import bigints, doubles, ints, octets, octets_or_none, texts
from pump.postgres.database import Database, Statement
from pump.postgres.schema import named
from pump.subscription import Subscription

from .waiting import Found, Kind, QueueWaiters
from .wire import Receipt, Row, envelope_of, message_of, octets_of, rows_of

T = TypeVar("T")

MAX_BODY: Final = 16 * 1024 * 1024
"""A row is copied in the server's memory several times on its way."""
MAX_SEND_COUNT: Final = 1_000
MAX_SEND_BYTES: Final = 8 * 1024 * 1024
"""Of messages in one statement, unless it is one."""

POSTGRES: Final = Capabilities(
    gateway="postgres",
    ordering_modes=frozenset({OrderingMode.FIFO, OrderingMode.LIFO}),
    has_strict_order=True,
    has_groups=True,
    has_deduplication=True,
    has_sessions=True,
    has_session_choice=True,
    has_native_redrive=True,
    has_uncounted_abandon=True,
    has_peek=True,
    has_purge=True,
    has_exact_stats=True,
    is_durable=True,
    is_shared=True,
    spans_machines=True,
    max_body_bytes=MAX_BODY,
    receive_batch=1_000,
    settle_batch=1_000,
    settle_linger_s=0.003,
    max_settle_calls=2,
    max_pollers=2,
)


LARGE_BYTES: Final = 16 * 1024 * 1024
"""A table of this size is left for another one."""
ROTATE_EVERY_S: Final = 0.5
_LOCK_MS: Final = 20
"""How long rotating may hold up others while it waits for them."""


class Rotation:
    """Has the space that messages have left given back, now and then, in the background."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._next_at_s: float | None = None

    def __call__(self) -> None:
        """A receive was answered; the first one of all is not yet a reason."""
        now_s = self._database.clock.now_s()
        if self._next_at_s is None or now_s >= self._next_at_s:
            if self._next_at_s is not None:
                self._database.tasks.start(self._rotate(), "rotate")
            self._next_at_s = now_s + ROTATE_EVERY_S

    async def _rotate(self) -> None:
        database = self._database
        rotate = named("SELECT @.rotate(%b, %b, %b)", database.settings.schema)
        # What fails here fails where it is of consequence too.
        with suppress(PumpError):
            await database.run(
                Statement(rotate, "rotate"), (LARGE_BYTES, int(ROTATE_EVERY_S * 1000), _LOCK_MS)
            )


class QueueCalls:
    """The functions of one queue, and what this process knows of it."""

    def __init__(
        self, database: Database, queue: str, waiters: QueueWaiters, rotate: Callable[[], object]
    ) -> None:
        self.database = database
        self.queue = queue
        self.waiters = waiters
        self.rotate = rotate
        """To be called after a receive: has space given back, if it is time."""
        self._unsure: dict[str, float] = {}
        """Receipts whose settlement was not answered, and when their lease is over at last."""
        self._extended: dict[str, int] = {}
        """Receipts that are under another lease than the one they began with."""

    @property
    def clock(self) -> Clock:
        """The gateway's."""
        return self.database.clock

    def statement(self, sql: str, operation: str) -> Statement:
        """A call of one of our functions."""
        return Statement(named(sql, self.database.settings.schema), operation, self.queue)

    async def call(self, sql: str, operation: str, *arguments: object) -> list[Sequence[Any]]:
        """The rows that a function returns."""
        return await self.database.call(self.statement(sql, operation), *arguments)

    async def run(self, sql: str, operation: str, *arguments: object) -> list[Sequence[Any]]:
        """The same, inside of a task that is kept."""
        return await self.database.run(self.statement(sql, operation), arguments)

    def told_self(self) -> None:
        """This process has changed something; where it listens, it is told like the others."""
        if not self.database.listens:
            self.waiters.notify()

    async def hand_back(self, deliveries: Sequence[Delivery]) -> None:
        """What was received for a caller that is gone: untried."""
        if deliveries:
            await self.settle([Settlement(each, ABANDON) for each in deliveries])

    # Settling.

    async def settle(
        self, settlements: Sequence[Settlement], *, session: str | None = None
    ) -> list[Refusal]:
        """Apply each once. A settlement whose answer got lost may be asked for again: as long as
        its lease lasts, only that settlement can have taken its message away.
        """
        refusals: list[Refusal] = []
        for part in parts(settlements, POSTGRES.settle_batch):
            refusals += await self._settle(part, session)
        return refusals

    async def _settle(
        self, settlements: Sequence[Settlement], session: str | None
    ) -> list[Refusal]:
        receipts = [Receipt.read(each.delivery.receipt) for each in settlements]
        known = [
            (receipt, each)
            for receipt, each in zip(receipts, settlements, strict=True)
            if receipt is not None
        ]
        refusals = [
            self.refusal(each.delivery, None)
            for receipt, each in zip(receipts, settlements, strict=True)
            if receipt is None
        ]
        if not known:
            return refusals
        delays = [_delay_of(each.action) for _, each in known]
        try:
            not_done = await self.call(
                "SELECT * FROM @.settle(%b, %b, %b, %b, %b)",
                "settle",
                self.queue,
                bigints([receipt.seq for receipt, _ in known]),
                ints([receipt.delivery for receipt, _ in known]),
                bigints([self._lease_of(receipt, each.delivery) for receipt, each in known]),
                None if all(delay is None for delay in delays) else doubles(delays),
            )
        except BaseException:
            self._note_unsure(each.delivery for _, each in known)
            raise
        self._tell_self(known, delays, is_in_doubt=bool(not_done))
        for position, was_applied in not_done:
            delivery = known[position - 1][1].delivery
            if was_applied and self._unsure.pop(delivery.receipt, None) is not None:
                continue
            refusals.append(self.refusal(delivery, None if was_applied else session))
        for _, each in known:
            self._extended.pop(each.delivery.receipt, None)
        return refusals

    def _tell_self(
        self,
        known: Sequence[tuple[Receipt, Settlement]],
        delays: Sequence[float | None],
        *,
        is_in_doubt: bool,
    ) -> None:
        # What this process gives back, or the next of a group, it finds before it is told.
        back = [
            receipt.seq
            for (receipt, each), delay in zip(known, delays, strict=True)
            if (delay is not None and delay <= 0) or each.delivery.message.group is not None
        ]
        if back:
            self.waiters.low_water.told_again(min(back))
        if is_in_doubt or any(delay is not None for delay in delays):
            self.told_self()

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> list[Refusal]:
        """Make the leases end then."""
        refusals: list[Refusal] = []
        for part in parts(deliveries, POSTGRES.settle_batch):
            refusals += await self._extend(part, lease_s)
        return refusals

    async def _extend(self, deliveries: Sequence[Delivery], lease_s: float) -> list[Refusal]:
        receipts = [(Receipt.read(each.receipt), each) for each in deliveries]
        known = [(receipt, each) for receipt, each in receipts if receipt is not None]
        extended = await self.call(
            "SELECT * FROM @.extend(%b, %b, %b, %b)",
            "extend",
            self.queue,
            bigints([receipt.seq for receipt, _ in known]),
            ints([receipt.delivery for receipt, _ in known]),
            lease_s,
        )
        self.waiters.due_in(lease_s)
        done: set[str] = set()
        for position, lease in extended:
            receipt, delivery = known[position - 1]
            done.add(delivery.receipt)
            if lease != receipt.lease:
                self._extended[delivery.receipt] = lease
        return [self.refusal(each, None) for each in deliveries if each.receipt not in done]

    def refusal(self, delivery: Delivery, session: str | None) -> Refusal:
        """Refuse what is not leased any more: by its session's lock, where it was that."""
        error: GatewayError = InvalidReceipt(self.queue, delivery.receipt)
        if session is not None:
            error = SessionLockLost(self.queue, session)
        return Refusal(delivery, error)

    def _lease_of(self, receipt: Receipt, delivery: Delivery) -> int:
        return self._extended.get(delivery.receipt, receipt.lease)

    def _note_unsure(self, deliveries: Iterable[Delivery]) -> None:
        now_s = self.clock.now_s()
        for receipt in [receipt for receipt, over_s in self._unsure.items() if over_s < now_s]:
            del self._unsure[receipt]
        for each in deliveries:
            # An extension may keep it for longer; then it is refused, and was settled all the same.
            self._unsure[each.receipt] = max(each.lease_expires_at_s, now_s) + 3600.0


def _delay_of(action: Action) -> float | None:
    match action:
        case Defer(delay_s):
            return max(delay_s, 0.0)
        case Abandon():
            return -1.0
        case _:
            return None


def parts(batch: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """A batch in pieces that one statement takes."""
    for start in range(0, len(batch), size):
        yield batch[start : start + size]


class PostgresConsumer:
    """Receives from one queue and settles what it received."""

    def __init__(self, calls: QueueCalls, subscription: Subscription) -> None:
        self._calls = calls
        self._lease_s = subscription.lease.total_seconds()
        self._is_lifo = subscription.ordering is OrderingMode.LIFO

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        if max_count < 1:
            return []
        calls, waiters = self._calls, self._calls.waiters
        ends_at_s = calls.clock.now_s() + wait_s
        while True:
            change_count = waiters.change_count
            try:
                deliveries = await calls.database.tasks.opened(
                    self._look(min(max_count, POSTGRES.receive_batch), is_whole=wait_s <= 0),
                    calls.hand_back,
                )
            except BaseException:
                # What it was woken for is another one's now.
                waiters.wake(Kind.MESSAGE)
                raise
            if deliveries:
                return deliveries
            left_s = ends_at_s - calls.clock.now_s()
            if left_s <= 0 or not calls.database.is_open:
                return []
            if waiters.change_count == change_count and not await waiters.wait(
                Kind.MESSAGE, left_s
            ):
                return []

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        return await self._calls.settle(settlements)

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> Sequence[Refusal]:
        return await self._calls.extend(deliveries, lease_s=lease_s)

    async def aclose(self) -> None:
        """Nothing to release: the connections are the gateway's."""

    async def _look(self, max_count: int, *, is_whole: bool) -> list[Delivery] | None:
        calls, waiters, clock = self._calls, self._calls.waiters, self._calls.clock
        asked_at_s = clock.now_s()
        scan = waiters.low_water.begin(asked_at_s, is_whole=is_whole)
        try:
            found = await calls.run(
                "SELECT * FROM @.receive(%b, %b, %b, %b, %b, %b)",
                "receive",
                calls.queue,
                max_count,
                self._lease_s,
                scan.from_seq,
                scan.since_s,
                scan.again_seq,
            )
        except BaseException:
            waiters.low_water.failed(scan)
            raise
        head, *rows = rows_of(found)
        waiters.queue_id = head.delivery
        waiters.low_water.end(
            scan,
            found_by(head, max_count),
            server_s=head.lease / 1e6,
            now_s=clock.now_s(),
            hears=calls.database.listens,
        )
        calls.rotate()
        waiters.due_in(head.moved_at_s)
        if rows:
            waiters.due_in(self._lease_s)
        if head.attempt >= max_count:
            waiters.wake(Kind.MESSAGE)
        rows.sort(key=lambda row: row.seq, reverse=self._is_lifo)
        return [
            Delivery(
                message=message_of(row, calls.queue),
                queue=calls.queue,
                receipt=str(Receipt(row.seq, row.delivery, row.lease)),
                attempt=row.attempt,
                lease_expires_at_s=asked_at_s + self._lease_s,
                broker_id=row.seq,
            )
            for row in rows
        ] or None


def found_by(head: Row, max_count: int) -> Found:
    """What the first row of `receive` says."""
    return Found(
        last_seq=head.seq,
        last_again=int(head.moved_from or 0),
        first_left=None if head.envelope is None else int(head.envelope),
        is_all=head.attempt < max_count,
    )


class PostgresProducer:
    """Sends to one queue: up to a thousand messages in a statement, all of it or nothing."""

    def __init__(self, calls: QueueCalls) -> None:
        self._calls = calls

    async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
        too_large = {
            each.id: MessageTooLarge(self._calls.queue, len(each.body), MAX_BODY)
            for each in messages
            if len(each.body) > MAX_BODY
        }
        failures: list[tuple[str, Exception]] = list(too_large.items())
        rest = [each for each in messages if each.id not in too_large]
        sent_count = 0
        for chunk in _chunks(rest):
            try:
                await self._send(chunk, delay_s)
            except PumpError as error:
                # What comes after would fail alike, or overtake.
                failures += [(each.id, error) for each in rest[sent_count:]]
                break
            sent_count += len(chunk)
        if failures and (sent_count or len({type(error) for _, error in failures}) > 1):
            raise SendFailed(self._calls.queue, tuple(failures))
        if failures:
            raise failures[0][1]
        return [message.id for message in messages]

    async def aclose(self) -> None:
        """Nothing to release: the connections are the gateway's."""

    async def _send(self, messages: Sequence[Message], delay_s: float) -> None:
        [[first_seq]] = await self._calls.call(
            "SELECT @.send(%b, %b, %b, %b, %b, %b)",
            "send",
            self._calls.queue,
            delay_s,
            texts([envelope_of(each) for each in messages]),
            octets([each.body for each in messages]),
            octets_or_none([octets_of(each.group) for each in messages]),
            octets_or_none([octets_of(each.deduplication_id) for each in messages]),
        )
        if first_seq is not None:
            # What is sent and then received in one process need not wait to be told.
            self._calls.waiters.low_water.told(first_seq)
        self._calls.told_self()


def _chunks(messages: Sequence[Message]) -> Iterator[list[Message]]:
    chunk: list[Message] = []
    size = 0
    for message in messages:
        if chunk and (len(chunk) >= MAX_SEND_COUNT or size + len(message.body) > MAX_SEND_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(message)
        size += len(message.body)
    if chunk:
        yield chunk

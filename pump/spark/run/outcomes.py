"""Outcomes first: a gateway whose consumers write what became of messages before they settle.

| `settle` is called with      | and the disk | the broker                                       |
|------------------------------|--------------|--------------------------------------------------|
| outcomes that have no row    | takes them   | is told                                          |
|                              | fails        | is told nothing; the settler tries again, and    |
|                              |              | when the lease is over the message comes again   |
| those whose rows are written | is not asked | is told                                          |
| what was not tried, or is    | is not asked | is told                                          |
| settled by hand              |              |                                                  |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping, Sequence
from functools import partial
from pathlib import Path
from weakref import WeakKeyDictionary

from ...capabilities import Capabilities
from ...clock import SYSTEM_CLOCK, Clock
from ...errors import StorageFailed, UnsupportedOperation
from ...events import Event, LeaseLostEvent, OutcomeEvent
from ...loop.processing import DeliveryResult, outcome_event, status_of
from ...message import Delivery
from ...observability import vocabulary
from ...observability.log import get_logger
from ...outcome import Refusal, Settlement
from ...ports import (
    AdminPort,
    ConsumerPort,
    Gateway,
    LeaseLosingPort,
    ProducerPort,
    SessionGateway,
    SessionPort,
)
from ...stores.ledger.buffered_ledger import WriterThread, pump_name
from ...stores.ledger.parquet_ledger import ParquetLedger
from ...stores.ledger.rows import Noted, RowMaker, RowStore
from ...subscription import Subscription
from ...tasks import look_at

_MAX_WAIT_S = 1.0


class OutcomesFirstPort:
    """A consumer port that records, then settles, and holds at most `flush` messages."""

    def __init__(
        self,
        port: ConsumerPort,
        subscription: str,
        ledger: OutcomeLedger,
        gate: Gate,
        *,
        flush: int,
        clock: Clock,
    ) -> None:
        self._port = port
        self.subscription = subscription
        self.held = 0
        """Messages received, and neither settled nor lost."""
        self._ledger = ledger
        self._gate = gate
        self._room = flush
        self._clock = clock
        self._roomy = asyncio.Event()
        # By settlement: the settler comes again with the same one, and lost ones just vanish.
        self._rows: MutableMapping[DeliveryResult, asyncio.Future[None]] = WeakKeyDictionary()

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        """As the port does, within the room and the quota; without either it only waits.

        For `_MAX_WAIT_S` at most: at the end of a slice the driver waits for it to come back.
        """
        wait_s = min(wait_s, _MAX_WAIT_S)
        room = await self._reserve(max_count, wait_s)
        if not room:
            return ()
        count = 0
        try:
            deliveries = await self._port.receive(max_count=room, wait_s=wait_s)
            count = len(deliveries)
            self.held += count
            return deliveries
        finally:
            self._gate.received(count, reserved=room)
            self._give_back(room - count)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        """As the port does, once every outcome is durable; `StorageFailed` when one cannot be."""
        await self._record(settlements)
        refusals = await self._port.settle(settlements)
        # What is refused is settled later, or lost, and the event of that gives it back.
        self.let_go(len(settlements) - len(refusals))
        return refusals

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> Sequence[Refusal]:
        """As the port does."""
        return await self._port.extend(deliveries, lease_s=lease_s)

    def when_lost(self, tell: Callable[[Sequence[Delivery]], None]) -> None:
        """As the port does, where it does."""
        if isinstance(self._port, LeaseLosingPort):
            self._port.when_lost(tell)

    async def aclose(self) -> None:
        """As the port does; what was not settled is not in flight any more."""
        self.let_go(self.held)
        await self._port.aclose()

    def let_go(self, count: int) -> None:
        """So many messages are out of our hands."""
        self.held -= count
        self._gate.gone(count)
        self._give_back(count)

    def _give_back(self, count: int) -> None:
        self._room += count
        if count:
            self._roomy.set()

    async def _reserve(self, max_count: int, wait_s: float) -> int:
        try:
            async with self._clock.timeout(wait_s):
                while self._room <= 0 or self._gate.is_spent:
                    self._roomy.clear()
                    await self._roomy.wait()
        except TimeoutError:
            return 0
        taken = self._gate.take(min(max_count, self._room))
        self._room -= taken
        return taken

    async def _record(self, settlements: Sequence[Settlement]) -> None:
        results = [each for each in settlements if isinstance(each, DeliveryResult)]
        events: list[OutcomeEvent] = []
        fresh: list[DeliveryResult] = []
        for result in results:
            status = status_of(result)
            if status is not None and not self._has_row(result):
                events.append(outcome_event(result, status, self.subscription))
                fresh.append(result)
        if events:
            written = self._ledger.write(events)
            for result in fresh:
                self._rows[result] = written
        for written in {self._rows[each] for each in results if each in self._rows}:
            if not written.done():
                # Another settlement may wait for it too; and the rows will be there anyhow.
                await asyncio.shield(written)
            else:
                written.result()

    def _has_row(self, result: DeliveryResult) -> bool:
        """Whether its row is written, or about to be; one that failed is written anew."""
        written = self._rows.get(result)
        return written is not None and (not written.done() or written.exception() is None)


class OutcomesFirst:
    """A gateway in front of another; only its consumers differ."""

    def __init__(
        self, gateway: Gateway, ledger: OutcomeLedger, gate: Gate, *, flush: int, clock: Clock
    ) -> None:
        self._gateway = gateway
        self._ledger = ledger
        self._gate = gate
        self._flush = flush
        self._clock = clock
        self._ports: list[OutcomesFirstPort] = []

    @property
    def capabilities(self) -> Capabilities:
        """Those of the gateway behind."""
        return self._gateway.capabilities

    async def open(self) -> None:
        """Open the gateway behind."""
        await self._gateway.open()

    async def aclose(self) -> None:
        """Close the gateway behind."""
        await self._gateway.aclose()

    def consumer(self, subscription: Subscription) -> ConsumerPort:
        """A consumer that records before it settles."""
        port = OutcomesFirstPort(
            self._gateway.consumer(subscription),
            subscription.name,
            self._ledger,
            self._gate,
            flush=self._flush,
            clock=self._clock,
        )
        self._ports.append(port)
        return port

    def producer(self, queue: str) -> ProducerPort:
        """That of the gateway behind."""
        return self._gateway.producer(queue)

    def admin(self) -> AdminPort:
        """That of the gateway behind."""
        return self._gateway.admin()

    async def accept_session(
        self, subscription: Subscription, session: str | None, *, wait_s: float
    ) -> SessionPort | None:
        """As the gateway behind does: sessions are consumed by hand, and not recorded."""
        if not isinstance(self._gateway, SessionGateway):
            name = self._gateway.capabilities.gateway
            raise UnsupportedOperation(name, "sessions", "it has none")
        return await self._gateway.accept_session(subscription, session, wait_s=wait_s)

    def note(self, event: Event) -> None:
        """An observer: a message whose lease is lost is no longer ours, unsettled."""
        if not isinstance(event, LeaseLostEvent):
            return
        for port in self._ports:
            if port.subscription == event.subscription and port.held:
                port.let_go(1)
                return


# Outcome ledger: rows that are on the disk when it says so, and never dropped.
#
# The ordinary ledger gathers rows and forgives a disk; here the broker is told only after the rows
# are durable, so a writer waits, and is told when they could not be written. What several write
# at once goes to the disk together.

_log = get_logger("pump.ledger")
_LINGER_S = 0.002
"""How long the first rows wait for company: one settle call brings ten at most, and a transaction
is dear. Tasks used a tenth less CPU a message with it, and 5 ms were no better."""
_CLOSE_WITHIN_S = 60.0
"""How long rolling may take at the end; what is not rolled then is in the journal, durably."""


class OutcomeLedger:
    """A ledger for one task, written like `ParquetLedger` into the same folder.

    As an observer it keeps lost leases only: outcomes are given to `write`, before their messages
    are settled.
    """

    def __init__(self, like: ParquetLedger) -> None:
        self._like = like
        self._clock: Clock = SYSTEM_CLOCK
        self._store: RowStore | None = None
        self._lost: list[Noted] = []
        self._waiting: list[Noted] = []
        self._written: asyncio.Future[None] | None = None
        self._asked = asyncio.Event()
        self._is_closing = False

    async def open(self, gateway: str, clock: Clock) -> None:
        self._clock = clock
        self._maker = RowMaker(gateway=gateway, pump=pump_name(), has_detail=self._like.has_detail)
        store = self._like.new_store()
        self._thread = WriterThread("pump-outcomes")
        try:
            await self._thread.do(store.open)
        except BaseException:
            self._thread.end()
            raise
        self._store = store
        self._writer = asyncio.create_task(self._work(store), name="outcome-writer")

    def record(self, event: Event) -> None:
        if isinstance(event, LeaseLostEvent):
            self._lost.append((event, self._clock.time_s()))

    def write(self, events: Sequence[OutcomeEvent]) -> asyncio.Future[None]:
        """Have rows written; the future ends when they are durable, or with `StorageFailed`, and
        then none of them is kept. It may be awaited by many, and must be shielded.
        """
        now_s = self._clock.time_s()
        self._waiting += [(event, now_s) for event in events]
        if self._written is None:
            self._written = asyncio.get_running_loop().create_future()
            # The waiter may have been cancelled: an error that is not retrieved is no defect.
            self._written.add_done_callback(look_at)
            self._asked.set()
        return self._written

    async def aclose(self) -> None:
        store, self._store = self._store, None
        if store is None:
            return
        self._is_closing = True
        self._asked.set()
        try:
            async with self._clock.timeout(_CLOSE_WITHIN_S):
                await self._writer
                await self._thread.do(partial(store.close, self._clock.time_s()))
        except (StorageFailed, OSError) as error:
            # The rows stay in the journal, and the next close of the ledger rolls them.
            self._say(vocabulary.LEDGER_UNROLLED, error)
        finally:
            self._writer.cancel()
            self._thread.end()

    async def _work(self, store: RowStore) -> None:
        while not self._is_closing or self._waiting or self._lost:
            await self._asked.wait()
            if not self._is_closing:
                self._asked.clear()
                await self._clock.sleep(_LINGER_S)
            await self._write(store)

    async def _write(self, store: RowStore) -> None:
        lost, self._lost = self._lost, []
        noted, self._waiting = [*lost, *self._waiting], []
        written, self._written = self._written, None
        try:
            wants_care = await self._thread.do(partial(_append, store, self._maker, noted))
        except Exception as error:  # broad: what no store can take must not be acked either
            self._say(vocabulary.LEDGER_UNWRITTEN, error)
            if not self._is_closing:
                self._lost = lost + self._lost
            _end(written, _as_ours(error, self._like.folder))
            return
        _end(written, None)
        if wants_care:
            await self._care(store)

    async def _care(self, store: RowStore) -> None:
        try:
            await self._thread.do(partial(store.care, self._clock.time_s()))
        except Exception as error:  # broad: settling waits for the writer, which must live
            self._say(vocabulary.LEDGER_UNROLLED, error)

    def _say(self, event: str, error: Exception) -> None:
        _log.warning(
            event,
            path=str(self._like.folder),
            error=str(error) or type(error).__name__,
            remedy="free or repair the disk below the ledger; no message is removed meanwhile",
        )


def _append(store: RowStore, maker: RowMaker, noted: Sequence[Noted]) -> bool:
    rows = maker(noted)
    return bool(rows) and store.append(rows)


def _as_ours(error: Exception, folder: Path) -> StorageFailed:
    if isinstance(error, StorageFailed):
        return error
    return StorageFailed(str(folder), f"{type(error).__name__}: {error}")


def _end(written: asyncio.Future[None] | None, error: Exception | None) -> None:
    if written is None or written.done():
        return
    if error is None:
        written.set_result(None)
    else:
        written.set_exception(error)


# Gate: how much a task may receive, and what it has in flight. Shared by its consumers.


class Gate:
    """Lets in so many messages in all, until it is closed; knows what has not come out again."""

    def __init__(self, quota: int, clock: Clock) -> None:
        self._left = quota
        self._clock = clock
        self._is_closed = False
        self.open_receives = 0
        """Receives under way, which may bring messages yet."""
        self.in_flight = 0
        """Messages received and neither settled nor lost."""
        self.moved_at_s = clock.now_s()
        """When a message last came or went."""
        self.empty_looks = 0
        """Receives since then that came back without a message."""

    @property
    def is_spent(self) -> bool:
        """Whether it lets nothing in: the quota is received or asked for, or the gate is closed."""
        return self._is_closed or self._left <= 0

    @property
    def is_full(self) -> bool:
        """Whether the whole quota has been received."""
        return self._left <= 0 and not self.open_receives

    @property
    def is_still(self) -> bool:
        """Whether nothing is in flight, and nothing can come before the next receive."""
        return not self.in_flight and not self.open_receives

    def close(self) -> None:
        """Let no receive in any more."""
        self._is_closed = True

    def take(self, count: int) -> int:
        """Reserve up to `count` of the quota."""
        taken = 0 if self._is_closed else max(0, min(count, self._left))
        self._left -= taken
        if taken:
            self.open_receives += 1
        return taken

    def received(self, count: int, *, reserved: int) -> None:
        """A receive came back with so many of those reserved."""
        self.open_receives -= 1
        self._left += reserved - count
        if count:
            self.in_flight += count
            self._moved()
        else:
            self.empty_looks += 1

    def gone(self, count: int) -> None:
        """So many were settled, or lost."""
        self.in_flight -= count
        self._moved()

    def _moved(self) -> None:
        self.moved_at_s = self._clock.now_s()
        self.empty_looks = 0

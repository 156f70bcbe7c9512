"""One queue in the layout of group commit, as a process has it: the asynchronous shell."""

from __future__ import annotations

import asyncio
from asyncio import CancelledError, get_running_loop
from collections.abc import Iterable, Sequence
from functools import partial

from msgspec.structs import replace

from pump.errors import GatewayError, InvalidReceipt, MessageTooLarge, PumpError, StorageFailed
from pump.message import Delivery, Message
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.outcome import Abandon, Ack, Action, Defer, Refusal, Settlement
from pump.ports import QueueStats

from ..._engine.record import EngineSettings
from ..._kit.queues import dead_letter
from ..layout import MAX_BODY_BYTES, QueueDescription, S3QueueSettings, Surroundings
from ..store.objects import DRIFT, drive
from .commit import read_segment
from .committer import Committer, Fulfilled, PacedStore, granted_s
from .context import ReceiveAnswer, WaitingReceive, WaitingReceives
from .entries import (
    UNCOUNTED,
    DeadLettered,
    ExtendOperation,
    Op,
    PurgeOperation,
    SettleOperation,
    hold,
    is_receipt,
)
from .follower import Follower
from .sending import Opened, SegmentCache, SegmentSender
from .sessions import LoggedSession, LoggedSessions, Shop
from .state import MOVE_S, Applied, PurgeResult, Refusals, TakenMessage, configure, stub

_log = get_logger("gateways.s3")


class LoggedQueue:
    """A `StoredQueue` on a log. Its settings are those in the log: the facts it is made with
    count when the log begins, and `adopt` changes them.
    """

    def __init__(
        self, facts: QueueDescription, surroundings: Surroundings, settings: S3QueueSettings
    ) -> None:
        self._around = surroundings
        self._name = facts.name
        self._cache = SegmentCache(self._read, settings.cache_bytes)
        self._follower = Follower(
            keys=surroundings.keys, settings=_settings(facts), writer=surroundings.new_id()
        )
        self._committer = Committer(
            self._follower, surroundings, WaitingReceives(settings.poll_s), self._note
        )
        self._sender = SegmentSender(self._committer, surroundings, self._cache)
        self._mover = LogDeadLetterMover(self._committer, surroundings, self._cache)
        shop = Shop(
            name=facts.name,
            committer=self._committer,
            poll_s=settings.poll_s,
            is_closed=lambda: self._is_closed,
            hand_out=self._hand_out,
            settle=self.settle,
        )
        self._sessions = LoggedSessions(shop, surroundings)
        self._is_closed = False

    async def send(self, messages: Sequence[Message], *, delay_s: float) -> list[str]:
        """As `ProducerPort.send`; `MessageTooLarge` before anything is sent."""
        self._check_open()
        for message in messages:
            if len(message.body) > MAX_BODY_BYTES:
                raise MessageTooLarge(self._name, len(message.body), MAX_BODY_BYTES)
        return await self._sender.send(messages, delay_s=delay_s)

    async def receive(self, *, max_count: int, wait_s: float, lease_s: float) -> list[Delivery]:
        """As `ConsumerPort.receive`."""
        if max_count < 1 or self._is_closed:
            return []
        now_s = self._around.clock.now_s()
        ask = WaitingReceive(
            max_count=max_count,
            lease_s=lease_s,
            deadline_s=now_s + wait_s,
            answer=get_running_loop().create_future(),
        )
        self._committer.ask(ask)
        try:
            got = await ask.answer
        except CancelledError:
            self._committer.withdraw(ask)
            raise
        return await self._hand_out(got, lease_s)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Refusal]:
        """As `ConsumerPort.settle`."""
        deliveries = [settlement.delivery for settlement in settlements]
        delays_s = [
            _delay_s(settlement.action)
            for settlement in settlements
            if is_receipt(settlement.delivery.receipt)
        ]
        held = hold(each.receipt for each in deliveries if is_receipt(each.receipt))
        is_all_acks = all(delay_s is None for delay_s in delays_s)
        op = SettleOperation(held, () if is_all_acks else tuple(delays_s))
        fulfilled = await self._do(op, bool(delays_s))
        # Only so that the caller finds the dead letter; a failed move is tried again.
        await self._mover.first_try(fulfilled.dead)
        return self._refusals(deliveries, fulfilled)

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> list[Refusal]:
        """As `ConsumerPort.extend`."""
        held = hold(each.receipt for each in deliveries if is_receipt(each.receipt))
        op, is_worth_it = ExtendOperation(held, granted_s(lease_s)), bool(held.numbers)
        asked_at_s, latest_s = self._around.clock.now_s(), self._around.time.latest_s()
        fulfilled = await self._do(op, is_worth_it)
        passed_s = (self._around.clock.now_s() - asked_at_s) * (1 + 2 * DRIFT)
        if self._around.time.earliest_s() > latest_s + passed_s:
            # The clock had stood still, with the machine: what was granted is over already, and
            # the consumer must learn so.
            fulfilled = await self._do(op, is_worth_it)
        return self._refusals(deliveries, fulfilled)

    async def accept_session(
        self, session: str | None, *, wait_s: float, lease_s: float
    ) -> LoggedSession | None:
        """As `SessionGateway.accept_session`."""
        self._check_open()
        return await self._sessions.accept(session, wait_s=wait_s, lease_s=lease_s)

    async def stats(self) -> QueueStats:
        """As `AdminPort.stats`; counted, in the state of the head at the time."""
        await self._look()
        return self._follower.replica.stats(self._around.time.earliest_s())

    async def peek(self, *, max_count: int) -> list[Message]:
        """As `AdminPort.peek`."""
        await self._look()
        seen = self._follower.replica.peek(self._around.time.earliest_s(), max_count)
        messages = [await self._cache.message(each.segment, each.place) for each in seen]
        return [message for message in messages if message is not None]

    async def purge(self) -> int:
        """As `AdminPort.purge`."""
        result = (await self._do(PurgeOperation(), True)).result
        return result.count if isinstance(result, PurgeResult) else 0

    async def adopt(self, facts: QueueDescription) -> None:
        """Let the queue be like this from now on, for every process; commits only a change."""
        await self._look()
        wanted = _settings(facts)
        self._follower.settings = wanted
        if self._follower.head is None:
            self._follower.start_anew()
        elif self._follower.replica.settings != wanted:
            await self._do(configure(wanted), True)

    async def aclose(self) -> None:
        """End everything that runs in the background; waiting receives return empty."""
        self._is_closed = True
        try:
            await self._sender.aclose()
            await self._mover.aclose()
            await self._cache.aclose()
            await self._committer.aclose()
        except CancelledError:
            await self._mover.aclose()
            await self._cache.aclose()
            await self._committer.stop()
            raise

    # Beneath.

    async def _do(self, op: Op, is_worth_it: bool) -> Fulfilled:
        self._check_open()
        if not is_worth_it:
            return Fulfilled(Refusals(()))
        return await self._committer.submit(op)

    async def _look(self) -> None:
        self._check_open()
        await self._committer.look()

    def _check_open(self) -> None:
        if self._is_closed:
            raise GatewayError(f"queue {self._name!r} is closed; open the gateway again")

    def _note(self, news: Sequence[Applied]) -> None:
        for applied in news:
            for segment in applied.emptied:
                self._cache.drop(segment)
        if not self._is_closed:
            self._mover.attend()

    async def _read(self, segment: str) -> list[bytes] | None:
        key = self._follower.segment_key(segment)
        store = PacedStore(self._around.store, self._around.clock)
        return await drive(read_segment(key), store)

    async def _hand_out(self, got: ReceiveAnswer, lease_s: float) -> list[Delivery]:
        """A message that cannot be read keeps its lease: the others pass it, and it is tried again
        when that is over, until its segment is restored.
        """
        try:
            opened = await self._cache.messages([(each.segment, each.place) for each in got.taken])
            faults = await self._faults(got.taken, opened)
        except BaseException:
            self._committer.hand_back(got.taken)
            raise
        deliveries = self._deliveries(got, opened, lease_s)
        if faults and not deliveries:
            raise faults[0]
        for fault in faults:
            _log.error(vocabulary.RECEIVE_FAILED, queue=self._name, error=str(fault))
        return deliveries

    def _deliveries(
        self, got: ReceiveAnswer, opened: Sequence[Opened], lease_s: float
    ) -> list[Delivery]:
        now_s = self._around.clock.now_s()
        server_s = self._around.time.latest_s()
        return [
            Delivery(
                message=message,
                queue=self._name,
                receipt=each.receipt,
                attempt=each.attempt,
                # The second is less only if the clock stood still, with the machine, meanwhile.
                lease_expires_at_s=min(got.built_s + lease_s, now_s + (each.expires_s - server_s)),
                broker_id=f"{each.segment}/{each.place}",
            )
            for each, message in zip(got.taken, opened, strict=True)
            if isinstance(message, Message)
        ]

    async def _faults(
        self, taken: Sequence[TakenMessage], opened: Sequence[Opened]
    ) -> list[StorageFailed]:
        """A segment may be gone because its messages are: purged, or settled elsewhere."""
        faults = [each for each in opened if isinstance(each, StorageFailed)]
        gone = [each for each, message in zip(taken, opened, strict=True) if message is None]
        if not gone:
            return faults
        await self._committer.look()
        leases = self._follower.replica.queue.leases
        remedy = "the segment of a message is gone; restore it, or purge the queue"
        return faults + [
            StorageFailed(self._follower.segment_key(each.segment), remedy)
            for each in gone
            if each.receipt in leases
        ]

    def _refusals(self, deliveries: Sequence[Delivery], fulfilled: Fulfilled) -> list[Refusal]:
        result = fulfilled.result
        refused = set(result.positions) if isinstance(result, Refusals) else set()
        refusals, position = [], 0
        for delivery in deliveries:
            is_valid = is_receipt(delivery.receipt)
            if not is_valid or position in refused:
                error = InvalidReceipt(self._name, delivery.receipt)
                refusals.append(Refusal(delivery, error))
            position += is_valid
        return refusals


def _settings(facts: QueueDescription) -> EngineSettings:
    return EngineSettings(
        name=facts.name,
        is_lifo=facts.is_lifo,
        is_strict=facts.is_strict,
        max_receive_count=facts.max_receive_count,
        dead_letter_queue=facts.dead_letter_queue,
        deduplication_window_s=facts.deduplication_window_s,
    )


def _delay_s(action: Action) -> float | None:
    match action:
        case Ack():
            return None
        case Abandon():
            return UNCOUNTED
        case Defer(delay_s):
            return max(0.0, delay_s)


# Dead letters: messages that had their last delivery go to the dead-letter queue, then out of this
# one.
#
# In this order, so that a crash in between makes a second copy at most; its de-duplication id is
# the same, so that a target which knows duplicates keeps one.

_AGAIN_S = 1.0
"""A move that failed is tried again after this long, then later and later."""


class LogDeadLetterMover:
    """Moves the dead messages this writer has claimed, until each is moved or another's task."""

    def __init__(
        self, committer: Committer, surroundings: Surroundings, cache: SegmentCache
    ) -> None:
        self._committer = committer
        self._around = surroundings
        self._cache = cache
        self._moves: dict[int, asyncio.Task[None]] = {}
        self._tries: dict[int, asyncio.Event] = {}

    def attend(self) -> None:
        """Take care of those that have become ours."""
        follower = self._committer.follower
        for number in follower.replica.claimed_by(follower.writer):
            if number not in self._moves:
                self._tries[number] = asyncio.Event()
                task = asyncio.create_task(self._dead_letter(number), name=f"dead letter {number}")
                self._moves[number] = task
                task.add_done_callback(partial(self._forget, number))

    async def first_try(self, numbers: Iterable[int]) -> None:
        """Return when each of them was moved, or could not be at the first try."""
        for number in numbers:
            tried = self._tries.get(number)
            if tried is not None:
                await tried.wait()

    async def aclose(self) -> None:
        """Leave the rest to others."""
        moves = list(self._moves.values())
        for task in moves:
            task.cancel()
        await asyncio.gather(*moves, return_exceptions=True)

    def _forget(self, number: int, task: asyncio.Task[None]) -> None:
        self._moves.pop(number, None)
        self._tries.pop(number).set()

    async def _dead_letter(self, number: int) -> None:
        pause_s, is_moved = _AGAIN_S, False
        while self._is_ours(number):
            try:
                if not is_moved:
                    await self._move(number)
                    is_moved = True
                await asyncio.shield(self._committer.submit(DeadLettered((number,))))
                return
            except PumpError as error:
                # It stays where it is, out of reach, and is tried again.
                target = self._committer.follower.replica.settings.dead_letter_queue
                _log.warning(vocabulary.ROUTING_FAILED, queue=target, error=repr(error))
                self._tries[number].set()
                await self._around.clock.sleep(pause_s)
                pause_s = min(2 * pause_s, MOVE_S)

    def _is_ours(self, number: int) -> bool:
        follower = self._committer.follower
        claim = follower.replica.dead.get(number)
        return claim is not None and claim.writer == follower.writer

    async def _move(self, number: int) -> None:
        replica = self._committer.follower.replica
        record, settings = replica.queue.records[number], replica.settings
        kept, attempt = stub(record), record.attempt
        message = await self._cache.message(kept.segment, kept.place)
        if message is None:
            raise StorageFailed(kept.segment, "the segment of a message is gone")
        if settings.dead_letter_queue is None:
            raise GatewayError(f"queue {settings.name!r} has no dead-letter queue")
        copy = dead_letter(
            replace(message, deduplication_id=f"{kept.segment}/{kept.place}"),
            queue=settings.name,
            attempt=attempt,
            wall_s=self._around.clock.time_s(),
        )
        await self._around.send_to(settings.dead_letter_queue, copy)

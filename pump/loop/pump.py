"""Pump: receives from one queue, has messages handled, and settles each exactly once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

import attrs

from ..capabilities import Capabilities
from ..errors import UnacceptableLimitReached
from ..events import Event
from ..message import Delivery
from ..observability import vocabulary
from ..observability.log import get_logger
from ..outcome import ABANDON, Ack, Defer, Settlement
from ..ports import ConsumerPort
from ..rejection import RejectionRouter
from ..services import Services
from ..subscription import Subscription, UnacceptableLimit
from .lanes import Lanes
from .leases import LeaseBook, LeaseKeeper
from .processing import DeliveryProcessor, DeliveryResult, Dispatch, is_unacceptable
from .receiving import ReceiveHealth, Receiver
from .reporting import PumpStats, Reporter
from .settler import Settler
from .workers import PATIENCE_S, Workers

_log = get_logger("pump.loop")
_HAND_BACK_S = 5.0
"""How long a cancelled pump takes, at most, to hand back what it holds."""


@attrs.frozen(kw_only=True, eq=False)
class PumpParts:
    """What a pump works with. The maker of the port and the router closes them."""

    subscription: Subscription
    capabilities: Capabilities
    port: ConsumerPort
    dispatch: Dispatch
    router: RejectionRouter
    services: Services
    emit: Callable[[Event], None] | None = None
    """Told of every event; None without observers, and then none is made."""


class Pump:
    """One subscription's pump. `run` it once; `drain` ends it without changing an outcome."""

    def __init__(self, parts: PumpParts, stats: PumpStats | None = None) -> None:
        self.stats = stats or PumpStats()
        self._subscription = parts.subscription
        services = parts.services
        self._clock = services.clock
        self._process = DeliveryProcessor(
            parts.dispatch,
            parts.router,
            parts.capabilities.max_defer_s,
            services.clock,
            services.telemetry,
            lambda delivery: self._keeper.hold(delivery),
        )
        self._reporter = Reporter(
            parts.subscription,
            self.stats,
            parts.emit,
            services=services,
            gateway=parts.capabilities.gateway,
        )
        self._lanes = Lanes(single_lane=parts.subscription.ordering_guarantee)
        self._workers = Workers(
            self._lanes,
            self._work,
            concurrency=parts.subscription.concurrency,
            on_idle=self._note_idle,
            clock=services.clock,
        )
        self._book = _lease_book(parts)
        self._keeper = self._build_keeper(parts)
        self._settler = self._build_settler(parts)
        self._receiver = Receiver(
            parts.port,
            parts.subscription,
            parts.capabilities,
            clock=services.clock,
            ready_count=lambda: self._lanes.ready_count,
            waiting_count=lambda: self._lanes.waiting_count,
            on_received=self._accept,
            on_poller_ended=self._break_off,
            telemetry=services.telemetry,
        )
        self._unacceptable = UnacceptableCount(parts.subscription.unacceptable_limit)
        self._drain_asked = asyncio.Event()
        self._failure: UnacceptableLimitReached | None = None
        self._cancelled_part: str | None = None
        self.on_draining: Callable[[], None] | None = None
        """Called when a drain is asked for, also by the pump itself."""

    @property
    def subscription(self) -> Subscription:
        """What this pump consumes."""
        return self._subscription

    @property
    def is_idle(self) -> bool:
        """Whether nothing is waiting, running or being settled."""
        return not self.in_flight

    @property
    def in_flight(self) -> int:
        """Messages that wait, run or are being settled."""
        return (
            self._lanes.waiting_count + self._workers.running_count + self._settler.unsettled_count
        )

    @property
    def running_count(self) -> int:
        """Handlers that run."""
        return self._workers.running_count

    @property
    def polls(self) -> ReceiveHealth:
        """How the broker answers this pump's receives."""
        return self._receiver.polls

    @property
    def is_stuck(self) -> bool:
        """Whether it should be receiving and is not; seen again and again, it is our defect."""
        return not self._drain_asked.is_set() and self._receiver.is_stuck

    @property
    def unattended_count(self) -> int:
        """Messages in flight that nothing handles: they could start and nothing runs, or they
        neither wait, run nor are being settled. Seen again and again, it is our defect.
        """
        startable = 0 if self._workers.running_count else self._lanes.ready_count
        return startable + max(0, len(self._book) - self.in_flight)

    def drain(self) -> None:
        """Ask the pump to stop: nothing more is received, what runs may finish."""
        self._drain_asked.set()
        if self.on_draining is not None:
            self.on_draining()

    def pause(self) -> None:
        """Receive nothing more; what is in flight runs to its end, leases kept.

        An open receive is cancelled. A paused pump can be drained, and scaled for later.
        """
        self._receiver.pause()

    def resume(self) -> None:
        """Receive again."""
        self._receiver.resume()

    def scale(self, concurrency: int) -> None:
        """Run this many handlers at once from now on; prefetch keeps its size."""
        self._receiver.scale(concurrency)
        self._workers.resize(concurrency)
        _log.info(
            vocabulary.PUMP_SCALED, subscription=self._subscription.name, concurrency=concurrency
        )

    async def run(self) -> None:
        """Pump until drained.

        Raises `UnacceptableLimitReached` when it stopped by itself. Cancelled, or broken by a
        defect, it hands back everything in flight before the error goes on; by a defect of
        the settler or the keeper, leases run out instead.
        """
        self._reporter.started()
        async with asyncio.TaskGroup() as keepers:
            background = [
                keepers.create_task(self._keeper.run(), name="lease keeper"),
                keepers.create_task(self._settler.run(), name="settler"),
            ]
            for task in background:
                task.add_done_callback(self._break_off)
            try:
                await self._pump_until_drained()
            except BaseException:
                await self._hand_back_everything()
                raise
            finally:
                for task in background:
                    task.cancel()
        self._reporter.drained()
        if self._failure is not None:
            raise self._failure

    async def _pump_until_drained(self) -> None:
        """Stop receiving → release what was not started → finish what was, leases still
        renewed → flush (law 5).
        """
        async with asyncio.TaskGroup() as group:
            self._workers.start(group).add_done_callback(self._break_off)
            try:
                receiving = group.create_task(self._receiver.run(), name="receiver")
                receiving.add_done_callback(self._break_off)
                await self._drain_asked.wait()
                if self._cancelled_part is not None:
                    raise RuntimeError(
                        f"something cancelled the pump's own task {self._cancelled_part!r}; a "
                        f"handler should cancel only tasks that it has started"
                    )
                _log.info(vocabulary.DRAIN_STARTED, subscription=self._subscription.name)
                receiving.cancel()
                await asyncio.wait([receiving])
                self._release(self._lanes.clear())
                await self._let_handlers_finish()
            finally:
                self._workers.stop()
        await self._flush(self._subscription.drain_timeout.total_seconds())

    def _break_off(self, part: asyncio.Task[None]) -> None:
        """A part has ended. Cancelled before its time, as by a handler that cancels all tasks, it
        takes the pump with it, which would stand still without a word.
        """
        if part.cancelled() and not self._drain_asked.is_set():
            self._cancelled_part = part.get_name()
            self._drain_asked.set()

    def _accept(self, deliveries: Sequence[Delivery]) -> None:
        now_s = self._clock.now_s()
        self.stats.last_receive_at_s = now_s
        if not deliveries:
            return
        self.stats.received += len(deliveries)
        expired = [each for each in deliveries if each.lease_expires_at_s <= now_s]
        if expired:
            deliveries = self._without(expired, deliveries)
        self._keeper.watch(deliveries)
        add = self._lanes.add
        for delivery in deliveries:
            add(delivery)
        self._workers.wake()

    def _without(
        self, expired: Sequence[Delivery], deliveries: Sequence[Delivery]
    ) -> list[Delivery]:
        """What was too long on its way may be another consumer's by now: not started (law 3)."""
        for delivery in expired:
            self._receiver.give_back(1)
            self._reporter.lost(delivery)
        return [each for each in deliveries if each not in expired]

    async def _work(self, delivery: Delivery) -> None:
        if self._book.is_over(delivery, self._clock.now_s()):
            self._drop_expired(delivery)
            return
        if not self._lanes.ready:
            self._receiver.look_again()
        try:
            result = await self._process(delivery, self._workers)
        except BaseException:
            # The pump ends, or the program: nothing may stay in the book that nothing runs.
            if not self._workers.is_left_behind(delivery):
                self._finish(_tried(delivery))
            raise
        if self._workers.is_left_behind(delivery):
            return
        if result is None:
            result = _tried(delivery)
        elif self._subscription.unacceptable_limit is not None and is_unacceptable(result):
            self._count_unacceptable()
        self._finish(result)

    def _finish(self, result: DeliveryResult) -> None:
        is_gone = isinstance(result.action, Ack)
        # A successor that may start now needs no wake: the worker that ran this one looks next.
        successors = self._lanes.finish(result.delivery, is_gone=is_gone)
        if successors:
            self._release(successors)
        self._settler.submit(result)

    def _drop_expired(self, delivery: Delivery) -> None:
        """Its lease ended while this process stood still, and the keeper had no turn yet: another
        may have handled it (law 3). The settler reports it; the broker is told nothing.
        """
        self._keeper.forget(delivery)
        self._release([delivery, *self._lanes.finish(delivery, is_gone=False)])

    def _note_idle(self) -> None:
        if not self._lanes.waiting_count:
            self._receiver.ran_dry()

    def _count_unacceptable(self) -> None:
        limit = self._subscription.unacceptable_limit
        if limit is not None and self._unacceptable.is_reached(self._clock.now_s()):
            self._failure = UnacceptableLimitReached(
                self._subscription.name, limit.count, limit.window.total_seconds()
            )
            self.drain()

    def _lose(self, delivery: Delivery) -> None:
        """A lease is gone: the worker that has the message must let go (law 3)."""
        if self._workers.recall(delivery):
            return
        successors = self._lanes.drop(delivery)
        if successors is not None:
            # The settler finds the lease gone and reports it; the broker is told nothing.
            self._release([delivery, *successors])

    def _release(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            self._settler.submit(DeliveryResult(delivery, ABANDON, ABANDON))

    def _note_settled(self, settlements: Sequence[Settlement]) -> None:
        forget = self._book.forget
        for settlement in settlements:
            forget(settlement.delivery)
        self._receiver.give_back(len(settlements))
        self._reporter.settled([each for each in settlements if isinstance(each, DeliveryResult)])

    def _note_lost(self, settlement: Settlement) -> None:
        self._keeper.forget(settlement.delivery)
        self._receiver.give_back(1)
        self._reporter.lost(settlement.delivery)

    async def _let_handlers_finish(self) -> None:
        try:
            async with self._clock.timeout(self._subscription.drain_timeout.total_seconds()):
                await self._workers.wait_until_done()
        except TimeoutError:
            self._reporter.drain_expired(self._workers.recall_all())
            await self._let_recalled_end()

    async def _let_recalled_end(self) -> None:
        try:
            async with self._clock.timeout(PATIENCE_S):
                await self._workers.wait_until_done()
        except TimeoutError:
            # They swallowed their cancellation: their leases must not be renewed for ever.
            for delivery in self._workers.leave_behind():
                self._reporter.left_behind(delivery)
                self._finish(_tried(delivery))

    async def _hand_back_everything(self) -> None:
        self._release(self._lanes.clear())
        for delivery in self._book.held():
            if not self._settler.has(delivery):
                self._settler.submit(_tried(delivery))
        await self._flush(_HAND_BACK_S)

    async def _flush(self, limit_s: float) -> None:
        try:
            async with self._clock.timeout(limit_s):
                await self._settler.flush()
        except TimeoutError:
            # The broker does not take them; the leases run out by themselves.
            self._reporter.flush_expired(self._settler.unsettled_count)

    def _build_keeper(self, parts: PumpParts) -> LeaseKeeper:
        return LeaseKeeper(
            self._book,
            parts.port,
            parts.subscription,
            batch=parts.capabilities.settle_batch,
            clock=parts.services.clock,
            on_lost=self._lose,
            telemetry=parts.services.telemetry,
        )

    def _build_settler(self, parts: PumpParts) -> Settler:
        return Settler(
            parts.port,
            parts.subscription,
            batch=parts.capabilities.settle_batch,
            linger_s=parts.capabilities.settle_linger_s,
            max_calls=parts.capabilities.max_settle_calls,
            clock=parts.services.clock,
            holds=self._book.__contains__,
            in_flight=self._book.__len__,
            on_settled=self._note_settled,
            on_lost=self._note_lost,
            on_call_ended=self._break_off,
            telemetry=parts.services.telemetry,
        )


def _tried(delivery: Delivery) -> DeliveryResult:
    """Handed back after its handler had begun: that counts as an attempt."""
    return DeliveryResult(delivery, Defer(), Defer())


def _lease_book(parts: PumpParts) -> LeaseBook:
    limits = [parts.capabilities.max_lease_s]
    if parts.subscription.max_lease is not None:
        limits.append(parts.subscription.max_lease.total_seconds())
    return LeaseBook(
        lease_s=parts.subscription.lease.total_seconds(),
        renew=parts.subscription.renew,
        max_lease_s=min((limit for limit in limits if limit is not None), default=None),
    )


# Limit: when so many messages were unacceptable that the fault is more likely ours. Pure.


class UnacceptableCount:
    """Counts unacceptable messages in a sliding window."""

    def __init__(self, limit: UnacceptableLimit | None) -> None:
        self._limit = limit
        self._times_s: deque[float] = deque()

    def is_reached(self, now_s: float) -> bool:
        """Count one more at `now_s`, and say whether that is too many."""
        if self._limit is None:
            return False
        self._times_s.append(now_s)
        oldest_s = now_s - self._limit.window.total_seconds()
        while self._times_s[0] <= oldest_s:
            self._times_s.popleft()
        return len(self._times_s) >= self._limit.count

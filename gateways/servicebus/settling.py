"""Settling: what the service is told of deliveries, and when that counts as done.

| the action          | what is told                                                          |
|---------------------|-----------------------------------------------------------------------|
| ack                 | completed                                                             |
| defer by 0          | abandoned: back in its place, counted by the service                  |
| abandon             | the same, with the number of hand-backs, which are no attempts        |
| defer               | a copy is scheduled, with its attempts; then completed                |
| … where none can be | held for as long, then abandoned: a sub-queue, or no right to send    |
| … at the last       | dead-lettered, with the reason: the service forwards it where it goes |
| … where the service | a copy is sent, with its attempts; then completed                     |
| would give it up    |                                                                       |

A lock that is lost between a copy and its completion has the copy cancelled: the original comes
again by itself. A process that dies in between leaves both, and a copy whose scheduling was not
answered may have a twin: its number is not known (ADR servicebus-deferring).

A lock is also lost by a settlement that was applied and whose answer was not heard. So where there
was such a one, the message is looked for: when it is gone, it is settled, and its copy stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from pump.clock import Clock, Timer
from pump.errors import AccessDenied, GatewayError, InvalidReceipt, LeaseLost, PumpError
from pump.message import Delivery
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.outcome import ABANDON, Abandon, Ack, Action, Defer, Refusal, Settlement

from .connection import Connections
from .errors import RequestRefused, Where
from .leases import Lease, Leases, Terms, lease_of
from .names import SEND_BATCH, parent_of
from .tap import Clerk, Fates, Pulled, Verdict
from .wire import Arrival, Parcel, again, hand_backs_of

COMPLETE = Verdict("completed")
ABANDONED = Verdict("abandoned")
DISCARD_S = 60.0
"""The lease of what came for nobody, where no consumer has said one."""
RETRY_S = 0.5
"""How soon a renewal that failed is tried again."""
_log = get_logger("gateways.servicebus")


def dead_letter(attempts: int) -> Verdict:
    """For a message that was delivered too often; in the words Service Bus uses itself."""
    detail = f"delivered {attempts} times (max_receive_count)"
    return Verdict("suspended", "MaxDeliveryCountExceeded", detail)


def untried(arrival: Arrival, queue: str) -> Verdict:
    """For a message that is handed back as it came."""
    return Verdict(ABANDONED.outcome, handed_back=hand_backs_of(arrival, queue=queue) + 1)


class Settling:
    """Settles, extends and expires the leases of one queue."""

    def __init__(self, queue: str, connections: Connections) -> None:
        self.leases = Leases()
        self.terms = Terms(lease_s=DISCARD_S)
        """Those of whoever asked last for a consumer."""
        self._queue = queue
        self._connections = connections
        self._clock: Clock = connections.clock
        self._clerk = Clerk(connections, queue)
        self._timer: Timer | None = None
        self._timer_at_s = float("inf")

    def hold(self, lease: Lease) -> None:
        """Enter what was received; from now on its end is watched."""
        self.leases.hold(lease)
        self._watch()

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        """See `ConsumerPort.settle`. Goes on in the background when cancelled."""
        now_s = self._clock.now_s()
        refusals: list[Refusal] = []
        taken: list[tuple[Lease, Action]] = []
        for settlement in settlements:
            lease = self.leases.take(settlement.delivery.receipt, now_s)
            if lease is None:
                refusals.append(self._refusal(settlement.delivery))
            else:
                taken.append((lease, settlement.action))
        if taken:
            work = self._connections.chores.start(self._perform(taken), "settle")
            refusals += await asyncio.shield(work)
        return refusals

    async def extend(self, deliveries: Sequence[Delivery], lease_s: float) -> Sequence[Refusal]:
        """See `ConsumerPort.extend`. The service is asked where its lock would end before."""
        now_s = self._clock.now_s()
        refusals: list[Refusal] = []
        leases: list[Lease] = []
        for delivery in deliveries:
            lease = self.leases.find(delivery.receipt, now_s)
            if lease is not None:
                leases.append(lease)
            elif not self.leases.prolong_taken(delivery.receipt, now_s, lease_s):
                refusals.append(self._refusal(delivery))
        # Before anybody is asked: an end that passes meanwhile would hand the message back.
        ends = {lease.delivery: lease.ends_at_s for lease in leases}
        for lease in leases:
            lease.ends_at_s = now_s + lease_s
        refused = await self._renewed(
            [lease for lease in leases if lease.lock_ends_at_s < lease.ends_at_s]
        )
        lost = {refusal.delivery for refusal in refused}
        for lease in leases:
            if lease.delivery in lost:
                lease.ends_at_s = ends[lease.delivery]
            self.leases.watch(lease, lease.looks_at_s)
        self._watch()
        return [*refusals, *refused]

    async def hand_back(self, leases: Sequence[Lease], *, is_tried: bool = False) -> None:
        """Make available again what nobody is going to handle; never raises for it. What was given
        out may have been tried, and then counts.
        """
        # What rests was deferred: it was tried.
        settlements = [
            Settlement(lease.delivery, Defer() if is_tried or lease.is_resting else ABANDON)
            for lease in leases
        ]
        for lease in leases:
            lease.is_resting = False
        refusals = await self.settle(settlements)
        # What the service could not be told is left to its own lock.
        untold = {refusal.delivery for refusal in refusals if not refusal.is_final}
        for lease in leases:
            if lease.delivery in untold:
                self.leases.spend(lease)
        self._tell(refusals)

    def hand_back_later(self, leases: Sequence[Lease]) -> None:
        """The same, without waiting for it."""
        self._connections.chores.start(self.hand_back(leases), "hand back")

    async def discard(self, pulled: Sequence[Pulled]) -> None:
        """Make available again what came for nobody; never raises for it."""
        now_s = self._clock.now_s()
        leases = [
            lease_of(
                each.arrival,
                queue=self._queue,
                terms=self.terms,
                locked_at_s=each.locked_at_s,
                now_s=now_s,
            )
            for each in pulled
        ]
        for lease in leases:
            self.hold(lease)
        await self.hand_back(leases)

    async def dead_letter(self, leases: Sequence[Lease]) -> None:
        """Move away what was delivered too often; what cannot be moved comes again."""
        self._tell(await self.settle([Settlement(lease.delivery, Defer()) for lease in leases]))

    def aclose(self) -> None:
        """Watch nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at_s = None, float("inf")

    async def _perform(self, taken: Sequence[tuple[Lease, Action]]) -> Sequence[Refusal]:
        told: dict[Verdict, list[Lease]] = {}
        copied: dict[float, list[tuple[Lease, Parcel]]] = {}
        replaced: list[Lease] = []
        for lease, action in taken:
            attempt = lease.delivery.attempt
            match action:
                case _ if lease.copy is not None:
                    replaced.append(lease)
                case Defer() if lease.is_last:
                    told.setdefault(dead_letter(attempt), []).append(lease)
                case Defer(delay_s=delay_s) if delay_s > 0:
                    copied.setdefault(delay_s, []).append(self._copy(lease, attempt))
                case Abandon() | Defer() if lease.is_last_to_service:
                    # It has counted what nothing has tried.
                    tried = attempt - 1 if isinstance(action, Abandon) else attempt
                    copied.setdefault(0.0, []).append(self._copy(lease, tried))
                case Ack():
                    told.setdefault(COMPLETE, []).append(lease)
                case Abandon():
                    told.setdefault(untried(lease.arrival, self._queue), []).append(lease)
                case Defer():
                    told.setdefault(ABANDONED, []).append(lease)
        refusals: list[Refusal] = []
        for verdict, leases in told.items():
            refusals += self._closed(leases, await self._told(verdict, leases))
        for delay_s, copies in copied.items():
            refusals += await self._deferred(copies, delay_s)
        if replaced:
            refusals += await self._replaced(replaced)
        return refusals

    def _copy(self, lease: Lease, attempts: int) -> tuple[Lease, Parcel]:
        return lease, again(lease.arrival, queue=self._queue, attempts=attempts)

    async def _told(self, verdict: Verdict, leases: Sequence[Lease]) -> Fates:
        fates = await self._clerk.settle(verdict, [lease.arrival.token for lease in leases])
        for lease in leases:
            token = lease.arrival.token
            error = fates[token]
            # Of many, some may have been settled by the request that was refused for others.
            is_doubtful = lease.is_unanswered or len(leases) > 1
            if isinstance(error, LeaseLost) and is_doubtful:
                fates[token] = await self._read_back(lease, error)
            elif error is not None:
                lease.is_unanswered = True
        return fates

    async def _read_back(self, lease: Lease, lost: LeaseLost) -> PumpError | None:
        """Whether a lock is lost, or its message is gone: None then."""
        from . import sdk

        where = Where(self._connections.address, "peeking", self._queue)
        sequence, now_s = lease.arrival.sequence, self._clock.time_s()
        try:
            clerk = self._connections.clerk(self._queue)
            seen = await clerk.call(where, lambda each: sdk.peek(each, 1, sequence, now_s))
        except GatewayError as error:
            return error
        is_there = any(arrival.sequence == sequence for arrival, _ in seen)
        return lost if is_there else None

    async def _deferred(
        self, copies: Sequence[tuple[Lease, Parcel]], delay_s: float
    ) -> list[Refusal]:
        refusals: list[Refusal] = []
        for chunk in chunked(copies, max_bytes=self._connections.settings.max_message_bytes):
            refusals += await self._scheduled(chunk, delay_s)
        return refusals

    async def _scheduled(
        self, copies: Sequence[tuple[Lease, Parcel]], delay_s: float
    ) -> list[Refusal]:
        from . import sdk

        leases, parcels = [lease for lease, _ in copies], [parcel for _, parcel in copies]
        if parent_of(self._queue) is not None:  # nobody can send there
            return self._rested(leases, delay_s)
        due_at = datetime.fromtimestamp(self._clock.time_s() + delay_s, UTC)
        where = Where(self._connections.address, "scheduling", self._queue)
        try:
            sender = self._connections.sender(self._queue)
            numbers = await sender.call(where, lambda link: sdk.schedule(link, parcels, due_at))
        except (AccessDenied, RequestRefused) as error:
            # Asking again would not help, and meanwhile nobody could stop in peace.
            _log.warning(vocabulary.SETTLE_FAILED, error=repr(error), queue=self._queue)
            return self._rested(leases, delay_s)
        except GatewayError as error:
            return self._closed(leases, {lease.arrival.token: error for lease in leases})
        for lease, number in zip(leases, numbers, strict=True):
            lease.copy = number
        return await self._replaced(leases)

    def _rested(self, leases: Sequence[Lease], delay_s: float) -> list[Refusal]:
        for lease in leases:
            self.leases.rest(lease, self._clock.now_s() + delay_s)
        self._watch()
        return []

    async def _replaced(self, leases: Sequence[Lease]) -> list[Refusal]:
        """Complete what has a copy. Without an answer both stay, for the next try to decide."""
        fates = await self._told(COMPLETE, leases)
        unwanted = [
            lease.copy
            for lease in leases
            if lease.copy is not None and isinstance(fates[lease.arrival.token], LeaseLost)
        ]
        if unwanted:
            await self._cancel(unwanted)
        return self._closed(leases, fates)

    async def _cancel(self, numbers: Sequence[int]) -> None:
        from . import sdk

        where = Where(self._connections.address, "cancelling", self._queue)
        for number in numbers:
            try:
                sender = self._connections.sender(self._queue)
                await sender.call(where, lambda each, it=number: sdk.cancel(each, [it]))  # type: ignore[misc]
            except GatewayError as error:
                # Both come: the message is handled twice rather than never.
                _log.warning(vocabulary.SETTLE_FAILED, error=repr(error), queue=self._queue)

    def _closed(self, leases: Sequence[Lease], fates: Fates) -> list[Refusal]:
        """Forget what is settled or lost; keep the rest, to be settled again."""
        refusals: list[Refusal] = []
        for lease in leases:
            error = fates[lease.arrival.token]
            if error is None:
                self.leases.spend(lease)
            elif isinstance(error, LeaseLost):
                self.leases.spend(lease)
                refusals.append(self._refusal(lease.delivery))
            else:
                self.leases.give_back(lease)
                refusals.append(Refusal(lease.delivery, _as_gateway_error(error)))
        self._watch()
        return refusals

    async def _renewed(self, leases: Sequence[Lease]) -> list[Refusal]:
        if not leases:
            return []
        asked_at_s = self._clock.now_s()
        fates, lasts = await self._clerk.renew([lease.arrival.token for lease in leases])
        refusals: list[Refusal] = []
        for lease in leases:
            token = lease.arrival.token
            error = fates[token]
            if token in lasts:
                lease.renewed(lasts[token], asked_at_s)
            elif isinstance(error, LeaseLost):
                self.leases.spend(lease)
                refusals.append(self._refusal(lease.delivery))
            elif error is not None:
                refusals.append(Refusal(lease.delivery, _as_gateway_error(error)))
        return refusals

    def _watch(self) -> None:
        look_s = self.leases.next_look_s()
        if look_s is None or look_s >= self._timer_at_s:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_s = look_s
        self._timer = self._clock.call_later(max(0.0, look_s - self._clock.now_s()), self._look)

    def _look(self) -> None:
        self._timer, self._timer_at_s = None, float("inf")
        to_renew, over = self.leases.due(self._clock.now_s())
        if to_renew:
            self._connections.chores.start(self._keep(to_renew), "renew")
        if over:
            self._connections.chores.start(self._expire(over), "lease expiry")
        self._watch()

    async def _keep(self, leases: Sequence[Lease]) -> None:
        await self._renewed(leases)
        again_at_s = self._clock.now_s() + RETRY_S
        for lease in leases:
            self.leases.watch(lease, max(lease.looks_at_s, again_at_s))
        self._watch()

    async def _expire(self, over: Sequence[Lease]) -> None:
        refusals = await self._perform([(lease, Defer()) for lease in over])
        # What the service could not be told is left to its own lock.
        for lease in over:
            self.leases.spend(lease)
        self._tell(refusals)

    def _tell(self, refusals: Sequence[Refusal]) -> None:
        lost = [each for each in refusals if not each.is_final]
        if lost:
            # Their locks run out.
            error = repr(lost[0].error)
            _log.warning(vocabulary.SETTLE_FAILED, error=error, count=len(lost))

    def _refusal(self, delivery: Delivery) -> Refusal:
        return Refusal(delivery, InvalidReceipt(self._queue, delivery.receipt))


def chunked(
    copies: Sequence[tuple[Lease, Parcel]], *, max_bytes: int
) -> Iterator[list[tuple[Lease, Parcel]]]:
    """As many as one request may hold, by count and by bytes; one alone always is."""
    chunk: list[tuple[Lease, Parcel]] = []
    size = 0
    for copy in copies:
        if chunk and (len(chunk) == SEND_BATCH or size + copy[1].size > max_bytes):
            yield chunk
            chunk, size = [], 0
        chunk.append(copy)
        size += copy[1].size
    if chunk:
        yield chunk


def _as_gateway_error(error: PumpError) -> GatewayError:
    assert isinstance(error, GatewayError)
    return error

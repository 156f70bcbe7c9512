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

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import attrs

from pump.clock import Clock
from pump.errors import AccessDenied, GatewayError, LeaseLost, PumpError
from pump.message import Delivery
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.outcome import ABANDON, Abandon, Ack, Defer, Refusal, Settlement

from .._kit.leases import Failures, Lease, LeaseSettler, WatchedLeases
from .connection import ServiceBusConnections
from .errors import RequestRefused, ServiceBusTarget
from .names import SEND_BATCH, parent_of
from .receive_link import Disposition, LockClient, Pulled, Results
from .wire import (
    ServiceBusArrival,
    ServiceBusParcel,
    again,
    attempt_of,
    decode,
    hand_backs_of,
    native_of,
    stored_id_of,
)

# Leases: what is in flight of one queue, and until when. Pure.
#
# The service locks a message for the queue's `LockDuration`, and renews by the same. A lease is
# whatever its subscription says, so it has an end of its own. Where the lease ends first, the
# message is handed back then; where the lock does, it is renewed meanwhile.
#
# | a lease is | when                                   | and then                          |
# |------------|----------------------------------------|-----------------------------------|
# | due        | half of its lock is over, its end far  | the lock is renewed               |
# | resting    | deferred where no copy can be sent     | its end is when the delay is over |
# | over       | its end has passed, its lock's has not | the message is handed back        |
# | gone       | its lock is over                       | it is forgotten                   |

EDGE_S = 0.1
"""An end this close to the lock's own is left to the service."""


@attrs.frozen(kw_only=True)
class LockTerms:
    """What a subscription says about the leases of its queue."""

    lease_s: float
    max_receive_count: int | None = None


class LockedLease(Lease, eq=False, kw_only=True):
    """What the service has locked for us, and what we hold for as long as we said."""

    lock_s: float
    lock_ends_at_s: float

    @property
    def looks_at_s(self) -> float:
        if self.lock_ends_at_s < self.ends_at_s:
            return self.lock_ends_at_s - self.lock_s / 2
        return self.ends_at_s

    @property
    def expires_at_s(self) -> float:
        """From when on it may not be used, unless something is done."""
        return min(self.ends_at_s, self.lock_ends_at_s)

    def is_over(self, now_s: float) -> bool:
        return self.expires_at_s <= now_s

    def renewed(self, lock_s: float, now_s: float) -> None:
        """The service has granted another lock."""
        self.lock_s = max(lock_s, 0.0)
        self.lock_ends_at_s = now_s + self.lock_s


class ServiceBusLease(LockedLease, eq=False, kw_only=True):
    """One delivery in flight."""

    delivery: Delivery
    arrival: ServiceBusArrival
    terms: LockTerms
    is_resting: bool = False
    is_unanswered: bool = False
    """A settlement went out, and what became of it is not known."""
    copy: int | None = None
    """The number of the scheduled copy that is to take its place."""

    def is_over(self, now_s: float) -> bool:
        """For its receiver it is over while it rests."""
        return self.is_resting or self.expires_at_s <= now_s

    @property
    def is_last(self) -> bool:
        """Whether this delivery is the last that the message gets."""
        limit = self.terms.max_receive_count
        return limit is not None and self.delivery.attempt >= limit

    @property
    def is_last_to_service(self) -> bool:
        """Whether the service gives it up when it is handed back, tried or not."""
        limit = self.terms.max_receive_count
        return limit is not None and self.arrival.delivery_count + 1 >= limit


class ServiceBusLeases(WatchedLeases[ServiceBusLease]):
    """The leases of one queue in this gateway."""

    def rest(self, lease: ServiceBusLease, until_s: float) -> None:
        """It is settled for its receiver, and held until then."""
        lease.is_taken, lease.is_resting = False, True
        lease.ends_at_s = until_s
        self.watch(lease.delivery.receipt)

    def sort_due(
        self, due: Sequence[ServiceBusLease], now_s: float
    ) -> tuple[list[ServiceBusLease], list[ServiceBusLease]]:
        """What must be renewed now, and what is over and must be handed back, taken.

        What the service has taken back itself is forgotten.
        """
        to_renew: list[ServiceBusLease] = []
        over: list[ServiceBusLease] = []
        for lease in due:
            has_ended = lease.ends_at_s <= now_s
            if lease.lock_ends_at_s <= now_s + (EDGE_S if has_ended else 0):
                self.spend(lease.delivery.receipt)
            elif has_ended:
                lease.is_taken = True
                over.append(lease)
            else:
                to_renew.append(lease)
        return to_renew, over


# Deliveries from what the service gives out. Pure.


def delivery_of(
    arrival: ServiceBusArrival, *, queue: str, lease_ends_at_s: float, is_ordered: bool = False
) -> Delivery:
    """The delivery of a message. Only a session keeps the order of a group."""
    return Delivery(
        message=decode(arrival),
        queue=queue,
        receipt=arrival.token,
        attempt=attempt_of(arrival, queue=queue),
        lease_expires_at_s=lease_ends_at_s,
        is_ordered=is_ordered,
        broker_id=stored_id_of(arrival),
        native=native_of(arrival),
    )


def lease_of(
    arrival: ServiceBusArrival, *, queue: str, terms: LockTerms, locked_at_s: float, now_s: float
) -> ServiceBusLease:
    """The lease of a message that has arrived by now, and was locked no earlier than then."""
    ends_at_s = locked_at_s + terms.lease_s
    return ServiceBusLease(
        delivery=delivery_of(arrival, queue=queue, lease_ends_at_s=ends_at_s),
        arrival=arrival,
        terms=terms,
        ends_at_s=ends_at_s,
        lock_s=arrival.lock_s,
        lock_ends_at_s=now_s + arrival.lock_s,
    )


COMPLETE = Disposition("completed")
ABANDONED = Disposition("abandoned")
DISCARD_S = 60.0
"""The lease of what no receive waits for, where no consumer has said one."""
RETRY_S = 0.5
"""How soon a renewal that failed is tried again."""
_log = get_logger("gateways.servicebus")


def dead_letter(attempts: int) -> Disposition:
    """For a message that was delivered too often; in the words Service Bus uses itself."""
    detail = f"delivered {attempts} times (max_receive_count)"
    return Disposition("suspended", "MaxDeliveryCountExceeded", detail)


def untried(arrival: ServiceBusArrival, queue: str) -> Disposition:
    """For a message that is handed back as it came."""
    return Disposition(ABANDONED.outcome, handed_back=hand_backs_of(arrival, queue=queue) + 1)


class ServiceBusSettling:
    """Settles, extends and expires the leases of one queue."""

    def __init__(self, queue: str, connections: ServiceBusConnections) -> None:
        self.terms = LockTerms(lease_s=DISCARD_S)
        """Those of the last request for a consumer."""
        self._queue = queue
        self._connections = connections
        self._clock: Clock = connections.clock
        self._lock_client = LockClient(connections, queue)
        self.leases = ServiceBusLeases(self._clock, self._act)
        self._settler = LeaseSettler(
            queue,
            self.leases,
            self._perform,
            clock=self._clock,
            start=lambda work: connections.chores.start(work, "settle"),
        )

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        """See `ConsumerPort.settle`. Goes on in the background when cancelled."""
        return await self._settler.settle(settlements)

    async def extend(self, deliveries: Sequence[Delivery], lease_s: float) -> Sequence[Refusal]:
        """See `ConsumerPort.extend`. The service is asked where its lock would end before."""
        now_s = self._clock.now_s()
        refusals: list[Refusal] = []
        leases: list[ServiceBusLease] = []
        for delivery in deliveries:
            lease = self.leases.find(delivery.receipt, now_s)
            if lease is None:
                refusals.append(self._settler.refusal(delivery))
            elif lease.is_taken:
                # In case the settlement does not come about. The lock is left alone: what the
                # service is asked now may cross with it.
                lease.ends_at_s = now_s + lease_s
            else:
                leases.append(lease)
        # Before the request: an end that passes meanwhile would hand the message back.
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
            self.leases.watch(lease.delivery.receipt)
        return [*refusals, *refused]

    async def hand_back(self, leases: Sequence[ServiceBusLease], *, is_tried: bool = False) -> None:
        """Make available again what will not be handled; never raises for it. What was given
        out may have been tried, and then counts.
        """
        # What rests was deferred: it was tried.
        settlements = [
            Settlement(lease.delivery, Defer() if is_tried or lease.is_resting else ABANDON)
            for lease in leases
        ]
        for lease in leases:
            lease.is_resting = False
        self._forget_untold(await self.settle(settlements))

    def hand_back_later(self, leases: Sequence[ServiceBusLease]) -> None:
        """The same, without waiting for it."""
        self._connections.chores.start(self.hand_back(leases), "hand back")

    async def discard(self, pulled: Sequence[Pulled]) -> None:
        """Make available again what no receive waits for; never raises for it."""
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
            self.leases.hold(lease.delivery.receipt, lease)
        await self.hand_back(leases)

    async def dead_letter(self, leases: Sequence[ServiceBusLease]) -> None:
        """Move away what was delivered too often; what cannot be moved comes again."""
        refusals = await self.settle([Settlement(lease.delivery, Defer()) for lease in leases])
        self._warn([each for each in refusals if not each.is_final])

    def aclose(self) -> None:
        """Watch nothing any more."""
        self.leases.unwatch()

    async def _perform(
        self, settlements: Sequence[Settlement], leases: Sequence[ServiceBusLease]
    ) -> Failures:
        told: dict[Disposition, list[ServiceBusLease]] = {}
        copied: dict[float, list[tuple[ServiceBusLease, ServiceBusParcel]]] = {}
        replaced: list[ServiceBusLease] = []
        for settlement, lease in zip(settlements, leases, strict=True):
            attempt = lease.delivery.attempt
            match settlement.action:
                case _ if lease.copy is not None:
                    replaced.append(lease)
                case Defer() if lease.is_last:
                    told.setdefault(dead_letter(attempt), []).append(lease)
                case Defer(delay_s=delay_s) if delay_s > 0:
                    copied.setdefault(delay_s, []).append(self._copy(lease, attempt))
                case Abandon() | Defer() as action if lease.is_last_to_service:
                    # It has counted what nothing has tried.
                    tried = attempt - 1 if isinstance(action, Abandon) else attempt
                    copied.setdefault(0.0, []).append(self._copy(lease, tried))
                case Ack():
                    told.setdefault(COMPLETE, []).append(lease)
                case Abandon():
                    told.setdefault(untried(lease.arrival, self._queue), []).append(lease)
                case Defer():
                    told.setdefault(ABANDONED, []).append(lease)
        results: Results = {}
        for disposition, some in told.items():
            results |= await self._told(disposition, some)
        for delay_s, copies in copied.items():
            results |= await self._deferred(copies, delay_s)
        if replaced:
            results |= await self._replaced(replaced)
        return {
            token: self._fault(token, error)
            for token, error in results.items()
            if error is not None
        }

    def _fault(self, token: str, error: PumpError) -> GatewayError:
        if isinstance(error, LeaseLost):
            return self._settler.invalid(token)
        assert isinstance(error, GatewayError)
        return error

    def _copy(
        self, lease: ServiceBusLease, attempts: int
    ) -> tuple[ServiceBusLease, ServiceBusParcel]:
        return lease, again(lease.arrival, queue=self._queue, attempts=attempts)

    async def _told(self, disposition: Disposition, leases: Sequence[ServiceBusLease]) -> Results:
        results = await self._lock_client.settle(
            disposition, [lease.arrival.token for lease in leases]
        )
        for lease in leases:
            token = lease.arrival.token
            error = results[token]
            # Of many, some may have been settled by the request that was refused for others.
            is_doubtful = lease.is_unanswered or len(leases) > 1
            if isinstance(error, LeaseLost) and is_doubtful:
                results[token] = await self._read_back(lease, error)
            elif error is not None:
                lease.is_unanswered = True
        return results

    async def _read_back(self, lease: ServiceBusLease, lost: LeaseLost) -> PumpError | None:
        """Whether a lock is lost, or its message is gone: None then."""
        from . import sdk

        where = ServiceBusTarget(self._connections.address, "peeking", self._queue)
        sequence, now_s = lease.arrival.sequence, self._clock.time_s()
        try:
            receiver = self._connections.lock_receiver(self._queue)
            seen = await receiver.call(where, lambda each: sdk.peek(each, 1, sequence, now_s))
        except GatewayError as error:
            return error
        is_there = any(arrival.sequence == sequence for arrival, _ in seen)
        return lost if is_there else None

    async def _deferred(
        self, copies: Sequence[tuple[ServiceBusLease, ServiceBusParcel]], delay_s: float
    ) -> Results:
        results: Results = {}
        for chunk in chunked(copies, max_bytes=self._connections.settings.max_message_bytes):
            results |= await self._scheduled(chunk, delay_s)
        return results

    async def _scheduled(
        self, copies: Sequence[tuple[ServiceBusLease, ServiceBusParcel]], delay_s: float
    ) -> Results:
        from . import sdk

        leases, parcels = [lease for lease, _ in copies], [parcel for _, parcel in copies]
        if parent_of(self._queue) is not None:  # it takes no sends
            return self._rested(leases, delay_s)
        due_at = datetime.fromtimestamp(self._clock.time_s() + delay_s, UTC)
        where = ServiceBusTarget(self._connections.address, "scheduling", self._queue)
        try:
            sender = self._connections.sender(self._queue)
            numbers = await sender.call(where, lambda link: sdk.schedule(link, parcels, due_at))
        except (AccessDenied, RequestRefused) as error:
            # Asking again would not help, and would only delay a stop.
            _log.warning(vocabulary.SETTLE_FAILED, error=repr(error), queue=self._queue)
            return self._rested(leases, delay_s)
        except GatewayError as error:
            return dict.fromkeys([lease.arrival.token for lease in leases], error)
        for lease, number in zip(leases, numbers, strict=True):
            lease.copy = number
        return await self._replaced(leases)

    def _rested(self, leases: Sequence[ServiceBusLease], delay_s: float) -> Results:
        for lease in leases:
            self.leases.rest(lease, self._clock.now_s() + delay_s)
        return {}

    async def _replaced(self, leases: Sequence[ServiceBusLease]) -> Results:
        """Complete what has a copy. Without an answer both stay, for the next try to decide."""
        results = await self._told(COMPLETE, leases)
        unwanted = [
            lease.copy
            for lease in leases
            if lease.copy is not None and isinstance(results[lease.arrival.token], LeaseLost)
        ]
        if unwanted:
            await self._cancel(unwanted)
        return results

    async def _cancel(self, numbers: Sequence[int]) -> None:
        from . import sdk

        where = ServiceBusTarget(self._connections.address, "cancelling", self._queue)
        for number in numbers:
            try:
                sender = self._connections.sender(self._queue)
                await sender.call(where, lambda each, it=number: sdk.cancel(each, [it]))  # type: ignore[misc]
            except GatewayError as error:
                # Both come: the message is handled twice rather than never.
                _log.warning(vocabulary.SETTLE_FAILED, error=repr(error), queue=self._queue)

    async def _renewed(self, leases: Sequence[ServiceBusLease]) -> list[Refusal]:
        if not leases:
            return []
        asked_at_s = self._clock.now_s()
        results, lasts = await self._lock_client.renew([lease.arrival.token for lease in leases])
        refusals: list[Refusal] = []
        for lease in leases:
            token = lease.arrival.token
            error = results[token]
            if token in lasts:
                lease.renewed(lasts[token], asked_at_s)
            elif error is not None:
                if isinstance(error, LeaseLost):
                    self.leases.spend(token)
                refusals.append(Refusal(lease.delivery, self._fault(token, error)))
        return refusals

    def _act(self, due: Sequence[ServiceBusLease]) -> None:
        to_renew, over = self.leases.sort_due(due, self._clock.now_s())
        if to_renew:
            self._connections.chores.start(self._keep(to_renew), "renew")
        if over:
            self._connections.chores.start(self._expire(over), "lease expiry")

    async def _keep(self, leases: Sequence[ServiceBusLease]) -> None:
        await self._renewed(leases)
        again_at_s = self._clock.now_s() + RETRY_S
        for lease in leases:
            self.leases.watch(lease.delivery.receipt, at_s=again_at_s)

    async def _expire(self, over: Sequence[ServiceBusLease]) -> None:
        defers = [Settlement(lease.delivery, Defer()) for lease in over]
        refusals = await self._settler.settle_taken(defers, over)
        self._forget_untold(refusals)
        for lease in over:
            # What can only be held back is not held again and again.
            self.leases.spend(lease.delivery.receipt)

    def _forget_untold(self, refusals: Sequence[Refusal]) -> None:
        """What the service could not be told is left to its own lock."""
        untold = [each for each in refusals if not each.is_final]
        for each in untold:
            self.leases.spend(each.delivery.receipt)
        self._warn(untold)

    def _warn(self, untold: Sequence[Refusal]) -> None:
        if untold:
            # Their locks run out.
            error = repr(untold[0].error)
            _log.warning(vocabulary.SETTLE_FAILED, error=error, count=len(untold))


def chunked(
    copies: Sequence[tuple[ServiceBusLease, ServiceBusParcel]], *, max_bytes: int
) -> Iterator[list[tuple[ServiceBusLease, ServiceBusParcel]]]:
    """As many as one request may hold, by count and by bytes; one alone always is."""
    chunk: list[tuple[ServiceBusLease, ServiceBusParcel]] = []
    size = 0
    for copy in copies:
        if chunk and (len(chunk) == SEND_BATCH or size + copy[1].size > max_bytes):
            yield chunk
            chunk, size = [], 0
        chunk.append(copy)
        size += copy[1].size
    if chunk:
        yield chunk

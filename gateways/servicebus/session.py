"""Sessions: one, from its lock to its release; and accepting them.

The service locks it for the queue's `LockDuration`; a lease has an end of its own, as outside of
sessions: the lock is renewed meanwhile, or released before its time. Messages have no locks of
their own here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Final

import attrs

from pump.errors import (
    ConnectionFailed,
    GatewayError,
    InvalidReceipt,
    LeaseLost,
    PumpError,
    SessionLocked,
    SessionLockLost,
    Throttled,
    UnsupportedOperation,
)
from pump.message import Delivery
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.outcome import Abandon, Ack, Defer, Refusal, Settlement
from pump.subscription import Subscription

from .._kit.leases import Alarm
from .._kit.session import SessionState
from .connection import ServiceBusConnections, close
from .errors import NoSessionFree, RequestRefused, ServiceBusTarget, fault_of
from .names import group_of, session_id_of
from .queue_settings import check_subscription
from .receive_link import Disposition, LockClient, slice_s
from .settling import ABANDONED, COMPLETE, LockedLease, LockTerms, dead_letter, delivery_of, untried
from .wire import ServiceBusArrival, decode

if TYPE_CHECKING:
    from .connection import Handle
    from .sdk import Receiver


_log = get_logger("gateways.servicebus")


@attrs.frozen(kw_only=True)
class ServiceBusSessionContext:
    """Which session of which queue, and under what terms."""

    queue: str
    session_id: str
    group: str
    terms: LockTerms


class ServiceBusSession:
    """The port of one session."""

    def __init__(
        self,
        connections: ServiceBusConnections,
        context: ServiceBusSessionContext,
        handle: Handle[Receiver],
        *,
        locked_at_s: float,
        lock_s: float,
    ) -> None:
        self._connections = connections
        self._clock = connections.clock
        self._context = context
        self._handle = handle
        self._lock_client = LockClient(
            connections, context.queue, session=context.group, handle=handle
        )
        self._lease = LockedLease(
            locked_at_s + context.terms.lease_s,
            lock_s=lock_s,
            lock_ends_at_s=locked_at_s + lock_s,
        )
        self._state = SessionState(context.queue, context.group, self._lease, clock=self._clock)
        self._alarm = Alarm(self._clock, self._look)
        self._arrived: list[ServiceBusArrival] = []
        """Here, and not returned yet."""
        self._in_flight: dict[Delivery, ServiceBusArrival] = {}
        self._performing: set[asyncio.Task[Sequence[Refusal]]] = set()
        self._is_noted = False
        self._is_foreign_state = False
        self._is_closed = False

    @property
    def id(self) -> str:
        return self._context.group

    @property
    def lock_expires_at_s(self) -> float | None:
        return self._lease.expires_at_s

    @property
    def rests_until_s(self) -> float:
        """When it may go on, on the gateway's clock."""
        return self._state.rests_until_s

    @property
    def is_over(self) -> bool:
        """Whether its lock is lost, or its lease has ended."""
        return self._state.is_over

    async def start(self) -> None:
        """Read what is noted about it, and watch its end."""
        from . import sdk

        until = rests_until(await self._handle.call(self._where("reading"), sdk.get_state))
        self._is_foreign_state = until is None
        self._is_noted = bool(until)
        if until:
            self._state.rests_until_s = self._clock.now_s() + until - self._clock.time_s()
        self._watch()

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        """What was delivered too often is moved away on the way, and not returned. Where
        deliveries are limited, one at a time.
        """
        if self._context.terms.max_receive_count is not None:
            # The service counts what is handed back: with a head that is deferred to its end,
            # successors would be dead-lettered untried.
            max_count = 1
        ends_at_s = self._clock.now_s() + wait_s
        look_s, has_looked = self._connections.settings.look_s, False
        while True:
            self._state.require()
            if not await self._state.has_rested(ends_at_s):
                return []
            if not self._arrived:
                left_s = ends_at_s - self._clock.now_s()
                await self._pull(max_count, slice_s(look_s, left_s, has_looked=has_looked))
                has_looked = True
            self._state.require()
            if ready := await self._taken(max_count):
                return ready
            if not self._arrived and self._clock.now_s() >= ends_at_s:
                return []

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        """A message that goes back takes everything with it that has not been returned yet."""
        self._state.require()
        refusals: list[Refusal] = []
        told: dict[Disposition, list[Delivery]] = {}
        rest_s = 0.0
        # Taken out meanwhile: no other call may settle it, or hand it back.
        taken: dict[Delivery, ServiceBusArrival] = {}
        for each in settlements:
            delivery = each.delivery
            if (arrival := self._in_flight.pop(delivery, None)) is None:
                error = InvalidReceipt(self._context.queue, delivery.receipt)
                refusals.append(Refusal(delivery, error))
                continue
            taken[delivery] = arrival
            disposition = self._disposition(each, arrival)
            told.setdefault(disposition, []).append(delivery)
            # What is dead-lettered instead frees its successors.
            if disposition is ABANDONED and isinstance(each.action, Defer):
                rest_s = max(rest_s, each.action.delay_s)
        performing = self._connections.chores.start(self._perform(told, taken, rest_s), "settle")
        self._performing.add(performing)
        performing.add_done_callback(self._performing.discard)
        refusals += await asyncio.shield(performing)
        return refusals

    async def renew(self) -> None:
        """The lock, and with it every message under it."""
        self._state.require()
        old_end_s = self._lease.ends_at_s
        # Before the request: an end that passes meanwhile would release the lock.
        self._lease.ends_at_s = self._clock.now_s() + self._context.terms.lease_s
        try:
            await self._renewed()
        except BaseException:
            self._lease.ends_at_s = old_end_s
            raise
        finally:
            self._watch()

    async def aclose(self) -> None:
        """What is being settled is waited for, and what is in flight goes back first; without the
        lock, by itself.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._alarm.cancel()
        work = self._connections.chores.start(self._let_go(), "release")
        await asyncio.shield(work)

    async def _pull(self, count: int, wait_s: float) -> None:
        """One slice; what comes stays here, whether or not a receive still waits for it."""
        from . import sdk

        async def pull(receiver: Receiver) -> None:
            self._arrived += await sdk.receive(receiver, count, wait_s, self._clock)

        await self._ask("receiving", pull)

    async def _taken(self, max_count: int) -> Sequence[Delivery]:
        """Return what has arrived, in order, and move away what came too often."""
        limit = self._context.terms.max_receive_count
        ready: list[Delivery] = []
        while self._arrived and len(ready) < max_count:
            arrival = self._arrived[0]
            delivery = delivery_of(
                arrival,
                queue=self._context.queue,
                lease_ends_at_s=self._lease.expires_at_s,
                is_ordered=True,
            )
            if limit is not None and delivery.attempt > limit:
                if ready:
                    break
                self._arrived.pop(0)
                await self._lock_client.settle(dead_letter(delivery.attempt), [arrival.token])
                continue
            self._arrived.pop(0)
            self._in_flight[delivery] = arrival
            ready.append(delivery)
        return ready

    def _disposition(self, settlement: Settlement, arrival: ServiceBusArrival) -> Disposition:
        limit = self._context.terms.max_receive_count
        attempt = settlement.delivery.attempt
        match settlement.action:
            case Ack():
                return COMPLETE
            case Defer() if limit is not None and attempt >= limit:
                return dead_letter(attempt)
            case Abandon():
                return untried(arrival, self._context.queue)
        return ABANDONED

    async def _perform(
        self,
        told: dict[Disposition, list[Delivery]],
        taken: dict[Delivery, ServiceBusArrival],
        rest_s: float,
    ) -> Sequence[Refusal]:
        refusals: list[Refusal] = []
        try:
            if any(disposition.outcome == ABANDONED.outcome for disposition in told):
                if rest_s > 0:
                    await self._rest(rest_s)
                await self._drain()
            for disposition, deliveries in told.items():
                tokens = [taken[each].token for each in deliveries]
                results = await self._lock_client.settle(disposition, tokens)
                for delivery, token in zip(deliveries, tokens, strict=True):
                    error = results[token]
                    if error is not None:
                        refusals.append(Refusal(delivery, self._refused(error)))
                    if error is None or refusals[-1].is_final:
                        del taken[delivery]
        finally:
            self._in_flight.update(taken)
        return refusals

    async def _drain(self) -> None:
        """Nothing that is on its way may come before what goes back now."""
        from . import sdk

        await self._ask("settling", sdk.revoke)
        if self._arrived:
            arrived, self._arrived = self._arrived, []
            await self._hand_back(arrived)

    async def _hand_back(self, arrivals: Iterable[ServiceBusArrival]) -> None:
        told: dict[Disposition, list[str]] = {}
        for arrival in arrivals:
            told.setdefault(untried(arrival, self._context.queue), []).append(arrival.token)
        for disposition, tokens in told.items():
            await self._lock_client.settle(disposition, tokens)

    async def _rest(self, rest_s: float) -> None:
        from . import sdk

        self._state.rest(rest_s)
        if self._is_foreign_state:
            # The next session does not know; this one does.
            return
        state = record(self._clock.time_s() + self._state.rests_until_s - self._clock.now_s())
        await self._ask("noting", lambda receiver: sdk.set_state(receiver, state))
        self._is_noted = True

    async def _let_go(self, *, is_tried: bool = False) -> None:
        """Give everything back; what is in flight when a lease ends counts as an attempt."""
        from . import sdk

        try:
            if self._performing:
                await asyncio.wait(self._performing)
            # Past the lease's end too, as long as the lock lasts.
            if not self._state.is_lost and self._lease.lock_ends_at_s > self._clock.now_s():
                await self._drain()
                if is_tried:
                    tokens = [arrival.token for arrival in self._in_flight.values()]
                    await self._lock_client.settle(ABANDONED, tokens)
                else:
                    await self._hand_back(self._in_flight.values())
                if self._is_noted and self._state.rests_until_s <= self._clock.now_s():
                    await self._ask("noting", lambda receiver: sdk.set_state(receiver, None))
        except GatewayError as error:
            # What is in flight goes back with the lock.
            _log.debug(vocabulary.SETTLE_FAILED, error=repr(error), queue=self._context.queue)
        finally:
            self._state.is_lost = True
            self._in_flight.clear()
            await self._handle.aclose()

    async def _renewed(self) -> None:
        from . import sdk

        asked_at_s, time_s = self._clock.now_s(), self._clock.time_s()

        async def renew(receiver: Receiver) -> None:
            self._lease.renewed(await sdk.renew_session(receiver, time_s), asked_at_s)

        await self._ask("renewing", renew)

    async def _ask(self, operation: str, work: Callable[[Receiver], Awaitable[None]]) -> None:
        try:
            await self._handle.call(self._where(operation), work)
        except (ConnectionFailed, SessionLockLost) as error:
            self._state.is_lost = True
            # The link was the lock.
            raise SessionLockLost(self._context.queue, self.id) from error

    def _watch(self) -> None:
        """Look again when the lock is half over, or the lease is."""
        self._alarm.cancel()
        if not self._is_closed and not self._state.is_lost:
            self._alarm.ring_at(self._lease.looks_at_s)

    def _look(self) -> None:
        if self._clock.now_s() >= self._lease.ends_at_s:
            self._connections.chores.start(self._expire(), "session expiry")
        else:
            self._connections.chores.start(self._keep(), "session renew")

    async def _keep(self) -> None:
        try:
            await self._renewed()
        except Throttled:
            # It was asked for with pauses; half of the lock is left for asking again.
            self._watch()
        except PumpError as error:
            # The link was the lock.
            self._state.is_lost = True
            _log.debug(vocabulary.SETTLE_FAILED, error=repr(error), queue=self._context.queue)
        else:
            self._watch()

    async def _expire(self) -> None:
        """The lease is over and the lock may not be: release it."""
        if not self._is_closed:
            self._is_closed = True
            await self._let_go(is_tried=True)

    def _refused(self, error: PumpError) -> GatewayError:
        if isinstance(error, SessionLockLost | ConnectionFailed):
            self._state.is_lost = True
        if self._state.is_lost or isinstance(error, LeaseLost):
            return SessionLockLost(self._context.queue, self.id)
        assert isinstance(error, GatewayError)
        return error

    def _where(self, operation: str) -> ServiceBusTarget:
        return ServiceBusTarget(self._connections.address, operation, self._context.queue, self.id)


# What is noted about a session in its state: until when it rests. Pure.
#
# A message that was deferred comes again before its successors, so the whole session waits for it,
# also in the next session. A state that another program has set is left alone.

_MARK: Final = "pump-session"
_VERSION: Final = 1


def rests_until(state: bytes | None) -> float | None:
    """When the session may go on, in Unix time; 0 for at once, None where the state is not ours."""
    if not state:
        return 0.0
    try:
        found = json.loads(state)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get(_MARK) != _VERSION:
        return None
    until = found.get("rests_until")
    if isinstance(until, int | float) and isfinite(until):
        return float(until)
    return 0.0


def record(until_s: float) -> bytes:
    """The state of a session that rests until then."""
    return json.dumps({_MARK: _VERSION, "rests_until": until_s}).encode()


# Accepting sessions: each is a connection of its own, whose link is the lock.

LEAST_WAIT_S = 0.1
MOST_WAIT_S = 5.0
"""How long the service is left to wait for a free session at a time."""
POLL_S = 0.2
"""How often a named session is tried that another holds: the service does not tell."""


class ServiceBusSessions:
    """Accepts the sessions of one subscription's queue."""

    def __init__(self, connections: ServiceBusConnections, subscription: Subscription) -> None:
        check_subscription(subscription)
        self._connections = connections
        self._clock = connections.clock
        self._queue = subscription.queue
        self._terms = LockTerms(
            lease_s=subscription.lease.total_seconds(),
            max_receive_count=subscription.max_receive_count,
        )

    async def accept(self, session: str | None, *, wait_s: float) -> ServiceBusSession | None:
        """See `SessionGateway.accept_session`."""
        ends_at_s = self._clock.now_s() + wait_s
        try:
            if session is None:
                return await self._accept_next(ends_at_s)
            return await self._accept_named(session, ends_at_s)
        except RequestRefused as error:
            if "session" not in error.detail.lower():
                raise
            raise UnsupportedOperation(
                "sb",
                f"sessions on queue {self._queue!r}",
                f"it was made without ({error.detail}); make it with options={{'sessions': True}}",
            ) from error

    async def _accept_named(self, group: str, ends_at_s: float) -> ServiceBusSession | None:
        while True:
            try:
                return await self._opened(session_id_of(group), group, LEAST_WAIT_S)
            except SessionLocked:
                left_s = ends_at_s - self._clock.now_s()
                if left_s <= 0:
                    return None
                await self._clock.sleep(min(POLL_S, left_s))

    async def _accept_next(self, ends_at_s: float) -> ServiceBusSession | None:
        """Those that rest are held meanwhile: the service would offer them again and again."""
        resting: list[ServiceBusSession] = []
        try:
            while True:
                now_s = self._clock.now_s()
                # A lease may end before a rest does: the service then offers the session again.
                resting = [each for each in resting if not each.is_over]
                if due := [each for each in resting if each.rests_until_s <= now_s]:
                    if await _is_renewed(due[0]):
                        resting.remove(due[0])
                        return due[0]
                    continue
                looks_at_s = min([ends_at_s, *(each.rests_until_s for each in resting)])
                wait_s = min(max(looks_at_s - now_s, LEAST_WAIT_S), MOST_WAIT_S)
                try:
                    found = await self._opened(None, None, wait_s)
                except NoSessionFree:
                    if self._clock.now_s() >= ends_at_s:
                        return None
                    continue
                if found.rests_until_s <= self._clock.now_s():
                    return found
                resting.append(found)
        finally:
            for each in resting:
                self._connections.chores.start(each.aclose(), "release")

    async def _opened(
        self, session_id: str | None, group: str | None, wait_s: float
    ) -> ServiceBusSession:
        from . import sdk

        receiver = sdk.session_receiver_of(
            self._connections.client,
            self._queue,
            session_id,
            wait_s=wait_s,
            read_s=self._connections.settings.read_s,
        )
        try:
            await self._open(receiver, group or "", wait_s)
            return await self._started(receiver, group)
        except BaseException:
            # Whatever happened, nothing stays locked.
            self._connections.chores.start(close(receiver, self._clock), "close")
            raise

    async def _open(self, receiver: Receiver, group: str, wait_s: float) -> None:
        from . import sdk

        where = ServiceBusTarget(self._connections.address, "accepting", self._queue, group)
        timeout_s = self._connections.settings.request_timeout_s + wait_s
        try:
            async with self._clock.timeout(timeout_s):
                await sdk.open_link(receiver)
        except Exception as error:  # broad: whatever the SDK raises is sorted
            raise fault_of(error, where) from error

    async def _started(self, receiver: Receiver, group: str | None) -> ServiceBusSession:
        from . import sdk

        session_id = sdk.session_of(receiver)
        handle = self._connections.own(
            _only(receiver, SessionLockLost(self._queue, group or session_id)), stale_s=None
        )
        context = ServiceBusSessionContext(
            queue=self._queue,
            session_id=session_id,
            group=await self._group(handle, session_id) if group is None else group,
            terms=self._terms,
        )
        lock_s = sdk.session_lock_s(receiver, self._clock.time_s())
        session = ServiceBusSession(
            self._connections, context, handle, locked_at_s=self._clock.now_s(), lock_s=lock_s
        )
        await session.start()
        return session

    async def _group(self, handle: Handle[Receiver], session_id: str) -> str:
        """The group of a session whose id is only a hash of it: its messages know."""
        from . import sdk

        if (group := group_of(session_id)) is not None:
            return group
        where = ServiceBusTarget(self._connections.address, "accepting", self._queue, session_id)
        now_s = self._clock.time_s()
        seen = await handle.call(where, lambda receiver: sdk.peek(receiver, 1, 1, now_s))
        return (decode(seen[0][0]).group if seen else None) or session_id


async def _is_renewed(session: ServiceBusSession) -> bool:
    """Whether it is given out with a whole lease, as one that was just accepted; False when its
    lock is lost.
    """
    try:
        await session.renew()
    except SessionLockLost:
        return False
    return True


def _only(receiver: Receiver, lost: GatewayError) -> Callable[[], Receiver]:
    """Gives the receiver once: a session's link is its lock, and there is no other."""
    left = [receiver]

    def give() -> Receiver:
        if not left:
            raise lost
        return left.pop()

    return give

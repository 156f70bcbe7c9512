"""Sessions: a group's messages through a consumer of its own, under a lock with an end.

The consumer belongs to this session alone, so what is given back needs no server: it is returned
again from here, before its successors and in order. At the end of the session, or of the lock,
the consumer goes, and the next session is given everything that was not acked, in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from math import inf
from typing import Final

import attrs
from msgspec.structs import replace

from pump.clock import Clock
from pump.errors import GatewayError, UnsupportedOperation
from pump.message import Delivery, new_id
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.outcome import Defer, Refusal, Settlement
from pump.subscription import Subscription
from pump.tasks import BackgroundTasks

from .._kit.leases import Lease
from .._kit.session import HeldMessage, SessionHand, SessionState
from .connection import ApiError, JetStream, fault_of, nanoseconds
from .errors import CONSUMER_NOT_FOUND, CONSUMER_NOT_UNIQUE
from .link import NoResponders, ServerRequest
from .names import NATS, QueueNames, name_of, token_of
from .pulls import (
    Arrived,
    Fetched,
    PullEnd,
    PullOptions,
    delivery_of,
    fetch,
    message_in,
    next_stored,
)
from .queue_settings import KnownQueues, NatsQueueSettings
from .receipts import receipt_for, subject_of
from .session_locks import SessionLocks, SessionRecord, StoredRecord
from .settling import ACK, Limit, Redrive


@attrs.frozen(kw_only=True)
class NatsSessionContext:
    """Which session of which queue, and under what terms."""

    names: QueueNames
    token: str
    id: str
    owner: str
    lease_s: float
    ahead_s: float
    """By how much the server's clock is ahead of `Clock.now_s`."""
    limit: Limit | None = None


class _Entry(HeldMessage, eq=False, kw_only=True):
    """Its place is that in the stream."""

    delivery: Delivery

    @property
    def subject(self) -> str:
        return subject_of(self.delivery.receipt)


class NatsSession:
    """The port of one session, from its lock to its release."""

    def __init__(
        self,
        api: JetStream,
        context: NatsSessionContext,
        *,
        revision: int,
        record: SessionRecord,
        locked_at_s: float,
        clock: Clock,
    ) -> None:
        self._api = api
        self._context = context
        self._clock = clock
        self._locks = SessionLocks(api, clock)
        self._consumers = SessionConsumers(api, context.names)
        self._redrive = Redrive(api.connection, context.names.queue, clock=clock)
        self._revision = revision
        self._attempts = dict(record.attempts)
        self._state = SessionState(
            context.names.queue,
            context.id,
            Lease(locked_at_s + context.lease_s),
            clock=clock,
        )
        self._state.rests_until_s = record.rests_until_s - context.ahead_s
        self._hand: SessionHand[_Entry] = SessionHand()
        self._writing = asyncio.Lock()

    @property
    def id(self) -> str:
        return self._context.id

    @property
    def is_over(self) -> bool:
        """Whether it was closed, or its lock lost."""
        return self._state.is_over

    @property
    def lock_expires_at_s(self) -> float | None:
        return self._state.lease.ends_at_s

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        """Each batch is written down before it is returned, which renews the lock as well."""
        ends_at_s = self._clock.now_s() + wait_s
        while True:
            self._state.require()
            if not await self._state.has_rested(ends_at_s):
                return []
            if ready := await self._ready(max_count):
                return await self._returned(ready)
            left_s = max(ends_at_s - self._clock.now_s(), 0.0)
            fetched = await self._fetch(max_count, left_s)
            for each in fetched.arrived:
                self._keep(each)
            if not fetched.arrived and fetched.end is PullEnd.DONE:
                return []

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        """Acks are the server's to confirm; what comes again stays here."""
        self._state.require()
        found = self._hand.sort(
            settlements, queue=self._context.names.queue, is_last=self._is_exhausted
        )
        for each, entry in found.again:
            self._came_back(entry, each)
        try:
            for each, entry in found.last:
                await self._move_away(entry, each)
            return [*found.refusals, *await self._acked(found.done)]
        finally:
            for _, entry in (*found.done, *found.last):
                entry.is_taken = False

    async def renew(self) -> None:
        self._state.require()
        await self._write()

    async def aclose(self) -> None:
        """The consumer goes first: its successor is then made without waiting for it."""
        if self.is_over:
            self._state.is_lost = True
            return
        for entry in self._hand:
            if entry.receipt:
                self._uncount(entry)
        await self._consumers.delete(self._context.owner)
        async with self._writing:
            self._state.is_lost = True
            await self._locks.replace(
                self._context.names.stream,
                self._context.token,
                self._record(owner=""),
                revision=self._revision,
            )

    async def _fetch(self, max_count: int, wait_s: float) -> Fetched:
        options = PullOptions(
            consumer=f"{self._context.names.stream}.{self._consumers.name(self._context.owner)}",
            max_count=min(max_count, NATS.receive_batch),
            wait_s=wait_s,
        )
        # Handed back, what came too late would be overtaken by its successors.
        fetched = await fetch(
            self._api, options, clock=self._clock, unwanted=lambda _, arrived: self._keep(arrived)
        )
        if fetched.end is PullEnd.GONE:
            # Only the lock's next owner deletes it.
            raise self._state.lose()
        return fetched

    def _keep(self, arrived: Arrived) -> None:
        """Enter what came, whether or not a receive still waits for it."""
        delivery = delivery_of(
            arrived, self._context.names, lease_s=self._context.lease_s, is_ordered=True
        )
        self._hand.add(_Entry(place=int(delivery.broker_id or 0), delivery=delivery))

    async def _ready(self, max_count: int) -> list[_Entry]:
        """What may be returned, in order; what was delivered too often moves away."""
        ready: list[_Entry] = []
        for entry in self._hand.ready():
            if len(ready) == max_count:
                break
            if entry.receipt:  # returned by another receive since
                continue
            attempts = self._attempts.get(entry.place, 0)
            if attempts >= self._most_attempts() and await self._move(entry, attempt=attempts):
                self._forget(entry)
            else:
                ready.append(entry)
        return ready

    async def _returned(self, entries: Sequence[_Entry]) -> Sequence[Delivery]:
        for entry in entries:
            # From now on: another receive must not return it as well.
            self._hand.give_out(entry, receipt_for(entry.subject))
            self._attempts[entry.place] = self._attempts.get(entry.place, 0) + 1
        try:
            await self._write()
        except BaseException:
            for entry in entries:
                self._hand.take_back(entry)
                self._uncount(entry)
            raise
        for entry in entries:
            entry.delivery = replace(
                entry.delivery,
                receipt=entry.receipt,
                attempt=self._attempts[entry.place],
                lease_expires_at_s=self._state.lease.ends_at_s,
            )
        return [entry.delivery for entry in entries]

    def _came_back(self, entry: _Entry, settlement: Settlement) -> None:
        if isinstance(settlement.action, Defer):
            self._state.rest(settlement.action.delay_s)
        else:
            self._uncount(entry)

    async def _acked(self, done: Sequence[tuple[Delivery, _Entry]]) -> list[Refusal]:
        waiting = [each for each in done if each[1] in self._hand]
        if not waiting:
            return []
        answers = await self._api.connection.request_all(
            [ServerRequest(subject=entry.subject, payload=ACK) for _, entry in waiting]
        )
        refusals: list[Refusal] = []
        for (delivery, entry), answer in zip(waiting, answers, strict=True):
            if isinstance(answer, GatewayError):
                refusals.append(Refusal(delivery, answer))
            elif isinstance(answer, NoResponders):
                refusals.append(Refusal(delivery, self._state.lose()))
            else:
                self._forget(entry)
        return refusals

    def _is_exhausted(self, entry: _Entry) -> bool:
        """Whether this is its last attempt."""
        return self._attempts.get(entry.place, 1) >= self._most_attempts()

    async def _move_away(self, entry: _Entry, settlement: Settlement) -> None:
        """Dead-letter it; where that fails it comes again."""
        if await self._move(entry, attempt=self._attempts.get(entry.place, 1)):
            self._forget(entry)
        else:
            self._hand.take_back(entry)
            self._came_back(entry, settlement)

    async def _move(self, entry: _Entry, *, attempt: int) -> bool:
        limit = self._context.limit
        return limit is not None and await self._redrive.move(
            entry.delivery, limit, attempt=attempt
        )

    def _most_attempts(self) -> float:
        return inf if self._context.limit is None else self._context.limit.count

    def _forget(self, entry: _Entry) -> None:
        self._hand.drop(entry)
        self._attempts.pop(entry.place, None)

    def _uncount(self, entry: _Entry) -> None:
        self._attempts[entry.place] = max(self._attempts.get(entry.place, 0) - 1, 0)

    async def _write(self) -> None:
        """Replace the record by what is so now, which makes the lock last a whole lease more."""
        async with self._writing:
            asked_at_s = self._clock.now_s()
            revision = await self._locks.replace(
                self._context.names.stream,
                self._context.token,
                self._record(owner=self._context.owner),
                revision=self._revision,
            )
            if revision is None:
                revision = await self._own_revision()
            self._revision = revision
            self._state.lease.ends_at_s = asked_at_s + self._context.lease_s

    async def _own_revision(self) -> int:
        """A replacement that was refused may have come after one of ours whose answer was lost."""
        found = await self._locks.read(self._context.names.stream, self._context.token)
        if found.record.owner != self._context.owner:
            raise self._state.lose()
        revision = await self._locks.replace(
            self._context.names.stream,
            self._context.token,
            self._record(owner=self._context.owner),
            revision=found.revision,
        )
        if revision is None:
            raise self._state.lose()
        return revision

    def _record(self, *, owner: str) -> SessionRecord:
        rests_until_s = self._state.rests_until_s
        is_resting = rests_until_s > self._clock.now_s()
        return SessionRecord(
            owner=owner,
            lease_s=self._context.lease_s if owner else 0.0,
            attempts={sequence: count for sequence, count in self._attempts.items() if count},
            rests_until_s=rests_until_s + self._context.ahead_s if is_resting else 0.0,
        )


# The consumers of sessions: one for a group at a time, which the server itself sees to.
#
# In a work-queue stream no two consumers may see the same subject. So a consumer that is left over
# has to be deleted before its successor can be made; from then on nothing that it gave out can be
# acked any more.

PREFIX: Final = "session-"
_LEASE_S: Final = 7 * 86_400.0
"""No message of a session is delivered again by the server: the session sees to that."""
_UNUSED_S: Final = 86_400.0
"""When the server removes a consumer that gets no pulls."""
_MAX_TRIES: Final = 5


class SessionConsumers:
    """Those of one queue, each named by the owner of its session's lock."""

    def __init__(self, api: JetStream, names: QueueNames) -> None:
        self._api = api
        self._names = names

    @staticmethod
    def name(owner: str) -> str:
        """What an owner's consumer is called."""
        return f"{PREFIX}{owner}"

    async def make(
        self, owner: str, token: str, *, before: str, is_over: Callable[[], bool]
    ) -> bool:
        """Make the consumer of a lock that was just acquired; `before` held it until then. False
        when the lock is over meanwhile: what is there now may belong to its next holder.
        """
        if before:
            await self.delete(before)
        for attempt in range(_MAX_TRIES):
            try:
                await self._create(owner, token)
            except ApiError as error:
                if error.error_code != CONSUMER_NOT_UNIQUE or attempt == _MAX_TRIES - 1:
                    raise fault_of(error, self._names.queue) from error
                if is_over():
                    return False
                # Of a lock whose record is gone, or made at this moment by a session that lost it.
                await self._delete_others(token)
            else:
                break
        return True

    async def delete(self, owner: str) -> None:
        """After this, nothing that it gave out can be acked. Idempotent."""
        await self._delete(self.name(owner))

    async def _create(self, owner: str, token: str) -> None:
        name, stream = self.name(owner), self._names.stream
        config = {
            "name": name,
            "ack_policy": "explicit",
            "ack_wait": nanoseconds(_LEASE_S),
            "max_deliver": -1,
            "max_ack_pending": -1,
            "inactive_threshold": nanoseconds(_UNUSED_S),
            "filter_subject": f"{stream}.g.{token}",
            "durable_name": name,
        }
        body = {"stream_name": stream, "action": "create", "config": config}
        await self._api.ask(f"CONSUMER.CREATE.{stream}.{name}", body)

    async def _delete_others(self, token: str) -> None:
        stream = self._names.stream
        subject, offset = f"{stream}.g.{token}", 0
        while True:
            page = await self._api.call(
                f"CONSUMER.LIST.{stream}", {"offset": offset}, queue=self._names.queue
            )
            found = page.get("consumers") or []
            for each in found:
                config = each["config"]
                if config.get("filter_subject") == subject and each["name"].startswith(PREFIX):
                    await self._delete(each["name"])
            offset += len(found)
            if not found or offset >= int(page.get("total") or 0):
                return

    async def _delete(self, name: str) -> None:
        try:
            await self._api.ask(f"CONSUMER.DELETE.{self._names.stream}.{name}")
        except ApiError as error:
            if error.error_code != CONSUMER_NOT_FOUND:
                raise fault_of(error, self._names.queue) from error


# Sessions: accepting the lock on a group, the one asked for or the next that has messages.

_LOOK_S = 0.5
"""A group that was free a moment ago is looked at again after this, whatever is heard."""

_SOON_S = 0.02
_AT_ONCE = 32
"""How many groups are looked at in one go."""

_log = get_logger("gateways.nats")


class NatsSessions:
    """Accepts the sessions of one subscription's queue."""

    def __init__(
        self,
        api: JetStream,
        known: KnownQueues,
        subscription: Subscription,
        *,
        clock: Clock,
        chores: BackgroundTasks,
    ) -> None:
        [*_, spec] = subscription.queue_specs()
        self._settings = NatsQueueSettings.from_spec(spec)
        self._names = self._settings.names
        self._lease_s = subscription.lease.total_seconds()
        self._api = api
        self._known = known
        self._clock = clock
        self._chores = chores
        """What goes on after a cancellation; the gateway waits for it when it closes."""
        self._locks = SessionLocks(api, clock)
        self._consumers = SessionConsumers(api, self._names)

    async def accept(self, session: str | None, *, wait_s: float) -> NatsSession | None:
        """See `SessionGateway.accept_session`."""
        limit = await self._terms(session)
        ends_at_s = self._clock.now_s() + wait_s
        async with self._heard(session) as heard:
            while True:
                heard.clear()
                accepted, free_in_s = await self._look(session, limit)
                left_s = ends_at_s - self._clock.now_s()
                if accepted is not None or left_s <= 0:
                    return accepted
                await self._wait(heard, min(left_s, free_in_s, _LOOK_S))

    async def _terms(self, session: str | None) -> Limit | None:
        queue = self._names.queue
        facts = await self._known.facts(self._settings)
        if not facts.has_sessions:
            raise UnsupportedOperation(
                NATS.gateway,
                f"sessions on queue {queue!r}",
                "all its messages go to one shared consumer; make the queue with "
                "options={'sessions': True}",
            )
        if session == "":
            raise UnsupportedOperation(
                NATS.gateway,
                "a session of the messages without a group",
                "they are received without a session; give them a group",
            )
        count = self._settings.max_receive_count or facts.max_receive_count
        target = self._settings.dead_letter_queue or facts.dead_letter_queue
        return Limit(count, target) if count and target else None

    async def _look(
        self, session: str | None, limit: Limit | None
    ) -> tuple[NatsSession | None, float]:
        """The session, or in how long one may be free that is not now."""
        ahead_s = await self._locks.ensure(self._names.queue)
        tokens = await self._tokens() if session is None else [token_of(session)]
        free_in_s = inf
        for start in range(0, len(tokens), _AT_ONCE):
            some = tokens[start : start + _AT_ONCE]
            records = await self._locks.read_all(self._names.stream, some)
            for token, found in zip(some, records, strict=True):
                busy_s = self._busy_s(found, ahead_s, is_chosen=session is not None)
                if busy_s == 0:
                    context = await self._context(token, session, ahead_s, limit)
                    accepted = await self._chores.opened(self._lock(context, found), let_go)
                    if accepted is not None:
                        return accepted, 0.0
                    # Another client was faster; how long it stays is not known yet.
                free_in_s = min(free_in_s, busy_s)
        return None, max(free_in_s, _SOON_S)

    def _busy_s(self, found: StoredRecord, ahead_s: float, *, is_chosen: bool) -> float:
        now_s = self._clock.now_s() + ahead_s
        held_s = found.held_for_s(now_s)
        return held_s if is_chosen else max(held_s, found.rests_for_s(now_s))

    async def _context(
        self, token: str, session: str | None, ahead_s: float, limit: Limit | None
    ) -> NatsSessionContext:
        return NatsSessionContext(
            names=self._names,
            token=token,
            id=session or await self._group(token),
            owner=new_id(),
            lease_s=self._lease_s,
            ahead_s=ahead_s,
            limit=limit,
        )

    async def _lock(self, context: NatsSessionContext, found: StoredRecord) -> NatsSession | None:
        """The session, unless another one took the lock at the same time."""
        locked_at_s = self._clock.now_s()
        before = found.record
        record = SessionRecord(
            owner=context.owner,
            lease_s=context.lease_s,
            attempts=before.attempts,
            rests_until_s=before.rests_until_s,
        )
        stream, token = self._names.stream, context.token
        revision = await self._locks.replace(stream, token, record, revision=found.revision)
        if revision is None:
            return None
        session = NatsSession(
            self._api,
            context,
            revision=revision,
            record=record,
            locked_at_s=locked_at_s,
            clock=self._clock,
        )
        try:
            is_made = await self._consumers.make(
                context.owner, token, before=before.owner, is_over=lambda: session.is_over
            )
        except GatewayError:
            await let_go(session)
            raise
        return session if is_made else None

    async def _tokens(self) -> Sequence[str]:
        """The groups that have messages, beginning at any: all callers would meet at the first."""
        info = await self._api.call(
            f"STREAM.INFO.{self._names.stream}",
            {"subjects_filter": self._names.groups},
            queue=self._names.queue,
        )
        subjects = sorted(info["state"].get("subjects") or {})
        start = int(self._clock.chance() * len(subjects))
        tokens = [self._names.group_token(each) for each in subjects[start:] + subjects[:start]]
        return [token for token in tokens if token is not None]

    async def _group(self, token: str) -> str:
        """The group's name; of a long one the subject has only the hash."""
        if (name := name_of(token)) is not None:
            return name
        subject = f"{self._names.stream}.g.{token}"
        stored = await next_stored(self._api, self._names, 1, subject=subject)
        return token if stored is None else message_in(stored, self._names).group or token

    @asynccontextmanager
    async def _heard(self, session: str | None) -> AsyncIterator[asyncio.Event]:
        """An event that is set when a lock changes hands, or a message of a group comes."""
        heard = asyncio.Event()
        link = await self._api.connection.link()
        token = "*" if session is None else token_of(session)
        subjects = [self._locks.subject(self._names.stream, token)]
        if session is None:
            subjects.append(self._names.groups)
        listening = await link.listen(subjects, heard.set)
        try:
            yield heard
        finally:
            link.unlisten(listening)

    async def _wait(self, heard: asyncio.Event, wait_s: float) -> None:
        try:
            async with self._clock.timeout(wait_s):
                await heard.wait()
        except TimeoutError:
            pass


async def let_go(session: NatsSession) -> None:
    """Close it; a lock that cannot be released runs out by itself."""
    try:
        await session.aclose()
    except GatewayError as error:
        _log.warning(vocabulary.SESSION_RELEASE_FAILED, session=session.id, error=repr(error))

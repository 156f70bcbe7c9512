"""Sessions: accepting the lock on a group, the one asked for or the next that has messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from math import inf

from pump.clock import Clock
from pump.errors import GatewayError, UnsupportedOperation
from pump.ids import new_id
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.subscription import Subscription

from .._kit.connection import BackgroundTasks
from .connection import JetStream
from .names import NATS, name_of, token_of
from .pulls import message_in, next_stored
from .queue_settings import KnownQueues, NatsQueueSettings
from .redrive import Limit
from .session import NatsSession, NatsSessionPlace, SessionConsumers
from .session_locks import SessionLocks, SessionRecord, StoredRecord

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
                    place = await self._place(token, session, ahead_s, limit)
                    accepted = await self._chores.opened(self._lock(place, found), let_go)
                    if accepted is not None:
                        return accepted, 0.0
                    # Another client was faster; how long it stays is not known yet.
                free_in_s = min(free_in_s, busy_s)
        return None, max(free_in_s, _SOON_S)

    def _busy_s(self, found: StoredRecord, ahead_s: float, *, is_chosen: bool) -> float:
        now_s = self._clock.now_s() + ahead_s
        held_s = found.held_for_s(now_s)
        return held_s if is_chosen else max(held_s, found.rests_for_s(now_s))

    async def _place(
        self, token: str, session: str | None, ahead_s: float, limit: Limit | None
    ) -> NatsSessionPlace:
        return NatsSessionPlace(
            names=self._names,
            token=token,
            id=session or await self._group(token),
            owner=new_id(),
            lease_s=self._lease_s,
            ahead_s=ahead_s,
            limit=limit,
        )

    async def _lock(self, place: NatsSessionPlace, found: StoredRecord) -> NatsSession | None:
        """The session, unless another one took the lock at the same time."""
        locked_at_s = self._clock.now_s()
        before = found.record
        record = SessionRecord(
            owner=place.owner,
            lease_s=place.lease_s,
            attempts=before.attempts,
            rests_until_s=before.rests_until_s,
        )
        stream, token = self._names.stream, place.token
        revision = await self._locks.replace(stream, token, record, revision=found.revision)
        if revision is None:
            return None
        session = NatsSession(
            self._api,
            place,
            revision=revision,
            record=record,
            locked_at_s=locked_at_s,
            clock=self._clock,
        )
        try:
            is_made = await self._consumers.make(
                place.owner, token, before=before.owner, is_over=lambda: session.is_over
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

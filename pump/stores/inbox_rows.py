"""The table of an inbox in PostgreSQL, whichever driver runs its statements.

| a row is                   | a second delivery's claim                                           |
|----------------------------|---------------------------------------------------------------------|
| claimed, its lease runs    | is `Busy` at once: it reads the row and waits for no lock           |
| claimed, its lease is over | takes it, unless a transaction of its owner's has it locked: `Busy` |
| done, the commit under way | is `Busy`, as the row is claimed until the commit                   |
| done                       | is `AlreadyDone`                                                    |

A claim is committed before its handler runs, and a transaction locks its row until it ends. So
there is no moment at which an uncommitted mark would let a second run through.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple

from ..clock import SYSTEM_CLOCK
from ..errors import ConfigurationError, PumpError
from ..outcome import DeferMessage
from ..postgres.schema import Component
from ..tasks import BackgroundTasks
from .inbox import AlreadyDone, Busy, Claim, Claimed, Held
from .postgres_tables import NOW_S, SharedCalls

TimeOf = Literal["server", "caller"]
"""Whose clock says when a claim ends."""
Run = Callable[[str, str, Sequence[object]], Awaitable[Sequence[Sequence[Any]]]]
"""Statement, what it is for and its arguments to its rows, committed. May raise `StorageFailed`."""

# The table. `prune_at_s` is set by the claim and never moved, so that to extend and to mark write
# no index (HOT): a row is removed when that moment and `expires_at_s` are over.

INBOX: Final = Component(
    version_table="inbox_version",
    version=1,
    upgrade=lambda found: (
        """
CREATE TABLE @.inbox_version (number int NOT NULL);
INSERT INTO @.inbox_version VALUES (0);
CREATE TABLE @.inbox (
    key bytea PRIMARY KEY,
    owner bytea NOT NULL,
    is_done boolean NOT NULL,
    expires_at_s float8 NOT NULL,
    lease_s float8 NOT NULL,
    prune_at_s float8 NOT NULL
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX inbox_prune ON @.inbox (prune_at_s);
"""
    ),
)
_ASKED: Final = f"""
asked AS MATERIALIZED (
    SELECT a.key, a.owner, coalesce(a.now_s, {NOW_S}) AS now_s, a.lease_s
    FROM unnest(
        CAST(%b AS bytea[]), CAST(%b AS bytea[]), CAST(%b AS float8[]), CAST(%b AS float8[])
    ) AS a (key, owner, now_s, lease_s)
)"""
# A claim that is its owner's already was made by this statement, whose answer was lost.
_CLAIM: Final = f"""
WITH {_ASKED}, known AS MATERIALIZED (
    SELECT a.*, i.is_done, i.expires_at_s, i.lease_s AS longest_s,
        i.owner = a.owner AND NOT i.is_done AS is_own
    FROM asked a LEFT JOIN LATERAL (
        SELECT * FROM @.inbox WHERE key = a.key OFFSET 0
    ) i ON true
), free AS MATERIALIZED (
    SELECT k.* FROM known k, LATERAL (
        SELECT FROM @.inbox WHERE key = k.key AND expires_at_s <= k.now_s FOR UPDATE SKIP LOCKED
    ) i WHERE k.expires_at_s <= k.now_s
), taken AS (
    UPDATE @.inbox i
    SET owner = f.owner, is_done = false, expires_at_s = f.now_s + f.lease_s, lease_s = f.lease_s,
        prune_at_s = f.now_s + %b
    FROM free f WHERE i.key = f.key
    RETURNING i.key
), made AS (
    INSERT INTO @.inbox (key, owner, is_done, expires_at_s, lease_s, prune_at_s)
    SELECT key, owner, false, now_s + lease_s, lease_s, now_s + %b FROM known
    WHERE is_done IS NULL ORDER BY key
    ON CONFLICT (key) DO NOTHING
    RETURNING key
)
SELECT k.key, EXISTS (SELECT FROM taken t WHERE t.key = k.key)
    OR EXISTS (SELECT FROM made m WHERE m.key = k.key)
    OR coalesce(k.is_own AND k.expires_at_s > k.now_s, false),
    k.is_done, k.expires_at_s - k.now_s, k.longest_s
FROM known k
"""
# A claim that seems to last for longer than its lease was made before the clock was set back. Its
# owner, if it lives, extends it as always.
_BOUND: Final = f"""
UPDATE @.inbox SET expires_at_s = coalesce(%b, {NOW_S}) + lease_s
WHERE key = %b AND NOT is_done AND expires_at_s > coalesce(%b, {NOW_S}) + lease_s
"""
_EXTEND: Final = f"""
UPDATE @.inbox SET expires_at_s = coalesce(%b, {NOW_S}) + %b, lease_s = %b
WHERE key = %b AND owner = %b AND NOT is_done
RETURNING 1
"""
_MARK: Final = f"""
WITH {_ASKED}, free AS MATERIALIZED (
    SELECT a.* FROM asked a, LATERAL (
        SELECT FROM @.inbox WHERE key = a.key FOR UPDATE SKIP LOCKED
    ) i
)
UPDATE @.inbox i SET owner = f.owner, is_done = true, expires_at_s = f.now_s + %b
FROM free f WHERE i.key = f.key
RETURNING i.key
"""
_MARK_ONE: Final = f"""
INSERT INTO @.inbox AS i (key, owner, is_done, expires_at_s, lease_s, prune_at_s)
SELECT %b, %b, true, now_s + %b, 0, now_s + %b FROM (SELECT coalesce(%b, {NOW_S}) AS now_s) AS n
ON CONFLICT (key) DO UPDATE
SET owner = excluded.owner, is_done = true, expires_at_s = excluded.expires_at_s
"""
_RELEASE: Final = """
WITH free AS MATERIALIZED (
    SELECT key FROM @.inbox WHERE key = %b AND owner = %b AND NOT is_done FOR UPDATE SKIP LOCKED
), released AS (
    DELETE FROM @.inbox WHERE key IN (SELECT key FROM free)
)
SELECT EXISTS (SELECT FROM free)
    OR NOT EXISTS (SELECT FROM @.inbox WHERE key = %b AND owner = %b AND NOT is_done)
"""
_PRUNE: Final = """
WITH moment AS MATERIALIZED (
    SELECT coalesce(%b, extract(epoch FROM statement_timestamp())::float8) AS now_s
), gone AS (
    DELETE FROM @.inbox WHERE key IN (
        SELECT key FROM @.inbox
        WHERE prune_at_s >= %b AND prune_at_s <= (SELECT now_s FROM moment)
            AND expires_at_s <= (SELECT now_s FROM moment)
        ORDER BY prune_at_s LIMIT %b FOR UPDATE SKIP LOCKED
    ) RETURNING prune_at_s
)
SELECT count(*), max(prune_at_s) FROM gone
"""
FENCE: Final = f"""
SELECT owner, is_done, expires_at_s - coalesce(%b, {NOW_S}), lease_s, pg_current_xact_id()::text
FROM @.inbox WHERE key = %b FOR UPDATE
"""
MARK_OWN: Final = f"""
UPDATE @.inbox SET is_done = true, expires_at_s = coalesce(%b, {NOW_S}) + %b
WHERE key = %b AND owner = %b AND NOT is_done AND pg_current_xact_id()::text = %b
RETURNING 1
"""

PRUNE_EVERY: Final = 256
_PRUNE_AT_ONCE: Final = 4 * PRUNE_EVERY
"""More than can have come since the last time, so that the table shrinks again."""
_PRUNE_ALL_EVERY: Final = 64
"""How many prunings begin where the last one ended, before one looks at all that is left."""
_LOCKED_S: Final = 1.0
"""For how long a claim is put off when a transaction has locked the row, its lease being over."""
_RELEASE_PAUSES_S: Final = (0.0, 0.02, 0.1, 0.4)
"""The server may take a moment to see that a connection is gone, and with it a transaction."""
_MAX_KEY_BYTES: Final = 512


class InboxCall(NamedTuple):
    """A claim, or a mark, as one of several in a statement."""

    key: bytes
    owner: bytes
    now_s: float | None
    lease_s: float


class _Answer(NamedTuple):
    is_given: bool
    is_done: bool | None
    """None where there was no row."""
    rest_s: float | None
    longest_s: float | None

    @property
    def is_passing(self) -> bool:
        """Whether the next look will find something else, as a rule."""
        return not self.is_given and (self.rest_s is None or self.rest_s <= 0)

    @property
    def is_locked(self) -> bool:
        """Whether it could be had, and another has it at this moment."""
        return self.is_passing and self.rest_s is not None


class InboxRows:
    """The operations of an inbox, each a statement, most of them shared by several calls.

    `arrays` makes what the driver takes for a list of each field.
    """

    def __init__(
        self,
        run: Run,
        *,
        retention_s: float,
        time_of: TimeOf,
        arrays: Callable[[Sequence[InboxCall]], tuple[object, ...]],
    ) -> None:
        self._run = run
        self._retention_s = retention_s
        self._time_of = time_of
        self._arrays = arrays
        self._claims = SharedCalls(self._claim, _key_of)
        self._marks = SharedCalls(self._mark, _key_of)
        self._tasks = BackgroundTasks("inbox")
        self._locked: set[tuple[str, str]] = set()
        self._until_prune = 0
        self._prune_count = 0
        self._pruned_to_s = float("-inf")

    async def claim(self, key: str, *, owner: str, now_s: float, lease_s: float) -> Claim:
        """As `Inbox.claim`."""
        call = InboxCall(key_bytes(key), key_bytes(owner), self.moment(now_s), lease_s)
        self._prune_now_and_then(call.now_s)
        answer = await self._claims.call(call)
        while answer.is_passing:
            # Another one was faster, or has just let go; or its transaction has the row locked.
            before, answer = answer, await self._claims.call(call)
            if answer.is_locked and before.is_locked:
                return Busy(now_s + min(_LOCKED_S, lease_s))
        if answer.is_given:
            return Claimed()
        if answer.is_done:
            return AlreadyDone()
        rest_s, longest_s = answer.rest_s or 0.0, answer.longest_s or lease_s
        if rest_s > longest_s:
            await self._run(_BOUND, "claim", (call.now_s, call.key, call.now_s))
        return Busy(now_s + min(rest_s, longest_s))

    async def extend(self, key: str, *, owner: str, now_s: float, lease_s: float) -> bool:
        """As `Inbox.extend`."""
        if (key, owner) in self._locked:
            # By the lock of its transaction the owner holds it for as long as that lasts.
            return True
        pair = key_bytes(key), key_bytes(owner)
        moment = self.moment(now_s)
        return bool(await self._run(_EXTEND, "extend", (moment, lease_s, lease_s, *pair)))

    async def complete(self, key: str, *, owner: str, now_s: float) -> None:
        """As `Inbox.complete`."""
        call = InboxCall(key_bytes(key), key_bytes(owner), self.moment(now_s), 0.0)
        if not await self._marks.call(call):
            # The row was pruned, or is locked: alone, so that no other mark waits with it.
            retention_s = self._retention_s
            mark = (call.key, call.owner, retention_s, retention_s, call.now_s)
            await self._run(_MARK_ONE, "complete", mark)

    async def release(self, key: str, *, owner: str) -> None:
        """As `Inbox.release`."""
        pair = key_bytes(key), key_bytes(owner)
        # The claim may be on its way still, if its caller was cancelled.
        await self._claims.finish(pair[0])
        for pause_s in _RELEASE_PAUSES_S:
            await SYSTEM_CLOCK.sleep(pause_s)
            [[is_free]] = await self._run(_RELEASE, "release", (*pair, *pair))
            if is_free:
                return

    async def finish(self) -> None:
        """Wait for what is done beside the calls."""
        await self._tasks.finish()

    # Inside the transaction of a handler.

    def fence(self, held: Held, now_s: float) -> tuple[object, ...]:
        """The arguments of `FENCE`."""
        return self.moment(now_s), key_bytes(held.key)

    def transaction_of(self, held: Held, row: Sequence[Any]) -> str:
        """The number of the transaction that has locked this row of `FENCE`; `DeferMessage` when
        the claim is not the handler's any more.
        """
        owner, is_done, rest_s, longest_s, transaction = row
        if bytes(owner) != key_bytes(held.owner) or is_done:
            # Done as our own: the answer to an earlier commit was lost.
            delay_s = 0.0 if is_done else min(max(0.0, rest_s), longest_s)
            raise DeferMessage(timedelta(seconds=delay_s))
        return str(transaction)

    def mark_own(self, held: Held, now_s: float, transaction: str) -> tuple[object, ...]:
        """The arguments of `MARK_OWN`, which returns a row in that transaction and no other."""
        pair = key_bytes(held.key), key_bytes(held.owner)
        return self.moment(now_s), self._retention_s, *pair, transaction

    def lock(self, held: Held) -> None:
        """Take note that a transaction has the claim's row."""
        self._locked.add((held.key, held.owner))

    def unlock(self, held: Held) -> None:
        """It has ended."""
        self._locked.discard((held.key, held.owner))

    # Calls that share a statement.

    async def _claim(self, calls: Sequence[InboxCall]) -> Sequence[_Answer]:
        retention_s = self._retention_s
        arguments = (*self._arrays(calls), retention_s, retention_s)
        rows = await self._run(_CLAIM, "claim", arguments)
        answers = {bytes(row[0]): _Answer(*row[1:]) for row in rows}
        return [answers[call.key] for call in calls]

    async def _mark(self, calls: Sequence[InboxCall]) -> Sequence[bool]:
        rows = await self._run(_MARK, "complete", (*self._arrays(calls), self._retention_s))
        marked = {bytes(key) for [key] in rows}
        return [call.key in marked for call in calls]

    # Pruning.

    def _prune_now_and_then(self, now_s: float | None) -> None:
        """Beside a claim, a batch at most: no caller waits, and no lock is waited for."""
        self._until_prune -= 1
        if self._until_prune < 0 and not self._tasks:
            self._until_prune = PRUNE_EVERY
            self._tasks.start(self._prune(now_s), "prune")

    async def _prune(self, now_s: float | None) -> None:
        # Where a transaction that is open for long keeps what was removed, the index would be read
        # from its beginning each time, through all of that.
        self._prune_count += 1
        if not self._prune_count % _PRUNE_ALL_EVERY:
            self._pruned_to_s = float("-inf")
        with suppress(PumpError):
            arguments = (now_s, self._pruned_to_s, _PRUNE_AT_ONCE)
            [[count, to_s]] = await self._run(_PRUNE, "prune", arguments)
            if count:
                self._pruned_to_s = to_s

    def moment(self, now_s: float) -> float | None:
        """The time that a statement is told, None for the server's own."""
        return now_s if self._time_of == "caller" else None


def key_bytes(text: str) -> bytes:
    """What stands for a key or an owner in the table: any text is one, and none is too long for an
    index.
    """
    given = text.encode("utf-8", "surrogatepass")
    if len(given) <= _MAX_KEY_BYTES:
        return given
    return given[: _MAX_KEY_BYTES - 32] + sha256(given).digest()


def check_time_of(field: str, time_of: str) -> None:
    """Say what is wrong with a choice of clock."""
    if time_of not in ("server", "caller"):
        raise ConfigurationError(field, time_of, 'use "server" or "caller"')


def _key_of(call: InboxCall) -> bytes:
    return call.key

"""Following: a replica kept up with the head, as steps.

| the head                       | is followed by                                           |
|--------------------------------|----------------------------------------------------------|
| is the one that is known       | nothing: one `Get` that answers 304                      |
| holds all that is missing      | its recent entries: one `Get`                            |
| has rolled some of it away     | those pieces of history, then its recent entries         |
| is past what history there is  | its snapshot, the pieces since, its recent entries       |
| names what is gone             | the next head: whoever removed it has committed another  |
| is gone, or of another log     | a new replica: the queue was removed                     |
"""

from __future__ import annotations

import attrs
from msgspec import Raw

from pump.errors import GatewayError, StorageFailed, Throttled

from ..._engine.settings import QueueSettings
from ..keys import QueueKeys
from ..store.driving import Steps
from ..store.objects import Busy, Found, Get, Missing, Remove, Same, Unknown
from . import codec
from .entries import Entry, Head
from .results import Applied
from .snapshot import restore
from .state import Replica

MAX_FAULTS = 6
"""How many unanswered requests a protocol bears; the shell pauses after each."""
_MAX_BUSY = 50
_MAX_STALE = 20
"""How often the head may move on while its history is being read."""
_REMOVED_AT_ONCE = 1000


@attrs.define(kw_only=True, eq=False)
class Follower:
    """What one process knows of a queue's log. Steps change it, one protocol at a time; left at
    any step, it is still true.
    """

    keys: QueueKeys
    settings: QueueSettings
    """What the queue will be like if its log is not begun yet."""
    writer: str
    """Nobody else's name, ever."""
    replica: Replica = attrs.field(init=False)
    head: Head | None = None
    etag: str | None = None
    """The head's; None when there is none, or nobody has looked yet."""
    is_loaded: bool = False
    """Whether the replica is at the head that is known."""
    restored: int = 0
    """The number of the entry whose snapshot it last started from: what came of those before is
    not in the news."""
    news: list[Applied] = attrs.field(factory=list)
    """What was applied since somebody last took this list."""
    litter: list[str] = attrs.field(factory=list)
    """Keys that entries of ours have made worthless."""

    def __attrs_post_init__(self) -> None:
        self.replica = Replica(self.settings)

    def apply(self, entry: Entry) -> Applied:
        """Apply an entry that is decided."""
        applied = self.replica.apply(entry)
        self.news.append(applied)
        if entry.writer == self.writer:
            self.litter += [self.segment_key(segment) for segment in applied.emptied]
        return applied

    def take_news(self) -> list[Applied]:
        """What was applied since the last call."""
        news, self.news = self.news, []
        return news

    def segment_key(self, segment: str) -> str:
        """Where the bodies of a segment are."""
        return f"{self.keys.segments}{segment}"

    def start_anew(self) -> None:
        """Forget a log that is no more."""
        self.replica = Replica(self.settings)
        self.head, self.etag = None, None


@attrs.define
class Patience:
    """Counts what went wrong in one protocol, and ends it when it is enough."""

    target: str
    faults: int = 0
    busy: int = 0
    stale: int = 0

    def bear(self, fault: Unknown | Busy) -> None:
        """Count a request that was not answered, or not decided."""
        if isinstance(fault, Busy):
            self.busy += 1
            if self.busy >= _MAX_BUSY:
                raise Throttled(self.target)
            return
        self.faults += 1
        if self.faults >= MAX_FAULTS:
            raise fault.error

    def bear_stale(self, max_count: int = _MAX_STALE) -> None:
        """Count another's commit that came first."""
        self.stale += 1
        if self.stale >= max_count:
            raise Throttled(self.target)


def refresh(follower: Follower) -> Steps[bool]:
    """Follow the head; returns whether there was anything new. Raises what stays unanswered."""
    patience = Patience(follower.keys.head)
    tried: str | None = None
    while True:
        reply = yield Get(follower.keys.head, unless=follower.etag)
        match reply:
            case Same():
                follower.is_loaded = True
                return False
            case Missing():
                is_new = follower.head is not None
                follower.start_anew()
                follower.is_loaded = True
                return is_new
            case Found(etag, body):
                # Left half way, it has applied more than the head it knows.
                follower.is_loaded = False
                head = codec.unpack_head(body, follower.keys.head)
                gone = yield from _follow(follower, head, patience)
                if gone is None:
                    follower.head, follower.etag, follower.is_loaded = head, etag, True
                    return True
                if tried == etag:
                    raise _damaged(gone, "the head names it, and it is not there")
                tried = etag
                patience.bear_stale()
            case _:
                patience.bear(fault(reply))


def _follow(follower: Follower, head: Head, patience: Patience) -> Steps[str | None]:
    """Apply what the head says; returns the key of what was gone, if something was."""
    known = follower.head
    if known is None or known.log != head.log or head.number < follower.replica.number:
        follower.start_anew()
    base = head.base
    if base is not None and follower.replica.number < base.number:
        body = yield from _read(base.key, patience)
        if body is None:
            return base.key
        snapshot = codec.unpack_snapshot(body, base.key)
        follower.replica = restore(snapshot, follower.settings.name)
        follower.restored = snapshot.number
    for piece in head.rolled:
        if piece.last > follower.replica.number:
            body = yield from _read(piece.key, patience)
            if body is None:
                return piece.key
            _apply_from(follower, codec.unpack_history(body, piece.key), piece.first, piece.key)
    first = head.number - len(head.recent) + 1
    _apply_from(follower, head.recent, first, follower.keys.head)
    if follower.replica.number != head.number:
        raise _damaged(follower.keys.head, f"entry {follower.replica.number + 1} is missing")
    follower.head = head
    return None


def _apply_from(follower: Follower, entries: tuple[Raw, ...], first: int, key: str) -> None:
    for packed in entries[max(0, follower.replica.number + 1 - first) :]:
        follower.apply(codec.unpack_entry(packed, key))


def _read(key: str, patience: Patience) -> Steps[bytes | None]:
    while True:
        reply = yield Get(key)
        match reply:
            case Found(_, body):
                return body
            case Missing():
                return None
            case _:
                patience.bear(fault(reply))


def clean(follower: Follower) -> Steps[None]:
    """Remove what entries of ours have made worthless. May be left undone: a sweep finds it."""
    while follower.litter:
        keys = follower.litter[:_REMOVED_AT_ONCE]
        del follower.litter[:_REMOVED_AT_ONCE]
        yield Remove(keys)


def fault(reply: object) -> Unknown | Busy:
    """What a reply that decides nothing says."""
    if isinstance(reply, Unknown | Busy):
        return reply
    return Unknown(_Unexpected(f"a reply of {type(reply).__name__} makes no sense here"))


class _Unexpected(GatewayError):
    """A store that answers one request with the reply to another."""


def _damaged(key: str, why: str) -> StorageFailed:
    return StorageFailed(
        key,
        f"the log is damaged: {why}. Something else removed objects of this queue (a lifecycle "
        f"rule?); restore them, or remove the queue and make it again",
    )

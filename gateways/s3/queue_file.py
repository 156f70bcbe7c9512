"""The queue file: one object a queue says what it is like, and that it exists."""

from __future__ import annotations

import attrs
import msgspec

from pump.errors import ConnectionFailed, QueueMismatch, QueueNotFound

from .keys import QueueKeys
from .layout import Layout, QueueFacts
from .queue_options import Wanted, differences
from .store.driving import Steps
from .store.objects import Found, Get, Missing, Put, Reply, Unknown, Written

_VERSION = 1
_MAX_TRIES = 10


@attrs.frozen
class QueueFile:
    """What a queue is like, and the version of the object that says so."""

    facts: QueueFacts
    etag: str


class _Content(msgspec.Struct, kw_only=True):
    version: int
    name: str
    layout: Layout
    is_lifo: bool = False
    is_strict: bool = False
    max_receive_count: int | None = None
    dead_letter_queue: str | None = None
    deduplication_window_s: float = 300.0


def encode(facts: QueueFacts) -> bytes:
    """The object's body."""
    return msgspec.json.encode(_Content(version=_VERSION, **attrs.asdict(facts)))


def decode(body: bytes, queue: str) -> QueueFacts:
    """Read a body; `QueueMismatch` when it is not one that this version understands."""
    try:
        content = msgspec.json.decode(body, type=_Content)
    except msgspec.MsgspecError as error:
        detail = f"its queue.json cannot be read ({error}); was it written by something else?"
        raise QueueMismatch(queue, detail) from error
    if content.version != _VERSION:
        detail = (
            f"its queue.json is of version {content.version}, and this Pumphouse reads {_VERSION}"
        )
        raise QueueMismatch(queue, f"{detail}; use the same version everywhere")
    fields = msgspec.structs.asdict(content)
    del fields["version"]
    return QueueFacts(**fields)


def read(keys: QueueKeys) -> Steps[QueueFile]:
    """What a queue is like; `QueueNotFound` when there is none."""
    found = yield from _look(keys)
    if found is None:
        raise QueueNotFound(keys.queue)
    return found


def reread(keys: QueueKeys, known: QueueFile) -> Steps[QueueFile]:
    """What a queue is like now; what is known already if the store does not say.

    Raises `QueueNotFound` when it is gone.
    """
    reply: Reply = yield Get(keys.facts, unless=known.etag)
    match reply:
        case Found(etag, body):
            return QueueFile(decode(body, keys.queue), etag)
        case Missing():
            raise QueueNotFound(keys.queue)
        case _:
            return known


def validate(keys: QueueKeys, wanted: Wanted) -> Steps[None]:
    """Raise `QueueNotFound` or `QueueMismatch` unless a queue is there and fits."""
    found = (yield from read(keys)).facts
    target = wanted.spec.dead_letter_queue
    if target is not None:
        yield from read(attrs.evolve(keys, queue=target))
    asked = wanted.facts(wanted.layout or found.layout)
    if not wanted.is_name_only and (detail := differences(found, asked)):
        raise QueueMismatch(keys.queue, detail)


def declare(keys: QueueKeys, wanted: Wanted, *, default: Layout) -> Steps[QueueFile]:
    """Make a queue, or change one that is there to what is wanted; several may do so at once.

    The layout of one that is there stays: `QueueMismatch` when another is asked for.
    """
    for _ in range(_MAX_TRIES):
        found = yield from _look(keys)
        if found is None:
            facts = wanted.facts(wanted.layout or default)
            request = Put(keys.facts, encode(facts), is_new=True)
        else:
            _check_layout(found.facts, wanted)
            if wanted.is_name_only:
                return found
            facts = wanted.facts(found.facts.layout)
            if facts == found.facts:
                return found
            request = Put(keys.facts, encode(facts), if_match=found.etag)
        reply: Reply = yield request
        match reply:
            case Written(etag):
                return QueueFile(facts, etag)
            case Unknown(error):
                raise error
            # Refused or busy: somebody else was there. What it is like now, the next look shows.
    raise ConnectionFailed(keys.facts, "others keep changing the queue's settings")


def _look(keys: QueueKeys) -> Steps[QueueFile | None]:
    reply: Reply = yield Get(keys.facts)
    match reply:
        case Found(etag, body):
            return QueueFile(decode(body, keys.queue), etag)
        case Unknown(error):
            raise error
        case _:
            assert isinstance(reply, Missing)
            return None


def _check_layout(found: QueueFacts, wanted: Wanted) -> None:
    if wanted.layout not in (None, found.layout):
        assert wanted.layout is not None
        raise QueueMismatch(
            found.name,
            f"its layout is {found.layout.value!r}, asked for {wanted.layout.value!r}, and a "
            f"layout cannot be changed; ask for a queue of another name, or empty this one, "
            f"stop its consumers and remove its objects",
        )

"""Queue options: what a `QueueSpec` asks of a queue in objects, validated. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final
from urllib.parse import quote

import attrs
import msgspec

from pump.capabilities import OrderingMode
from pump.errors import ConfigurationError, ConnectionFailed, QueueMismatch, QueueNotFound
from pump.subscription import QueueSpec

from .._kit.queues import check_redrive
from .layout import Layout, QueueDescription, QueueKeys
from .store.objects import FoundObject, Get, Missing, Put, Reply, Steps, Unknown, WrittenObject

LAYOUT: Final = "layout"
DEDUPLICATION_WINDOW: Final = "deduplication_window"
MAX_NAME_BYTES: Final = 500
"""Encoded: a key has 1,024 bytes, of which a prefix and the rest of the key want some."""


@attrs.frozen(kw_only=True)
class Wanted:
    """What is asked of a queue; what it does not say fits any queue."""

    spec: QueueSpec
    layout: Layout | None
    window_s: float | None
    is_name_only: bool
    """Only the name counts, as that of a rejection target: whatever the queue is like will do."""

    @classmethod
    def from_spec(cls, spec: QueueSpec) -> Wanted:
        """Translate a spec; `ConfigurationError` names the field that cannot work."""
        _check_name(spec.name)
        if spec.ordering_guarantee and spec.ordering is OrderingMode.LIFO:
            raise ConfigurationError(
                "QueueSpec.ordering_guarantee",
                True,
                "newest-first has no order to guarantee; use FIFO, or drop the guarantee",
            )
        check_redrive(spec)
        _check_options(spec.options)
        wanted = cls(
            spec=spec,
            layout=_layout(spec.options.get(LAYOUT)),
            window_s=_window_s(spec.options.get(DEDUPLICATION_WINDOW)),
            is_name_only=spec == QueueSpec(name=spec.name),
        )
        if wanted.layout is not None:
            wanted.facts(wanted.layout)
        return wanted

    def facts(self, layout: Layout) -> QueueDescription:
        """What the queue is to be like if it is kept this way."""
        if layout is Layout.LEASES and self.window_s:
            raise ConfigurationError(
                f"QueueSpec.options[{DEDUPLICATION_WINDOW!r}]",
                self.spec.options[DEDUPLICATION_WINDOW],
                f"the layout 'leases' knows no duplicates; ask for {LAYOUT}='log'",
            )
        spec = self.spec
        facts = QueueDescription(
            name=spec.name,
            layout=layout,
            is_lifo=spec.ordering is OrderingMode.LIFO,
            is_strict=spec.ordering_guarantee,
            max_receive_count=spec.max_receive_count,
            dead_letter_queue=spec.dead_letter_queue if spec.max_receive_count else None,
        )
        if self.window_s is None:
            return facts
        return attrs.evolve(facts, deduplication_window_s=self.window_s)


def differences(found: QueueDescription, wanted: QueueDescription) -> str:
    """Say in words where a queue departs from what is wanted; empty when it does not."""
    is_, asked = attrs.asdict(found), attrs.asdict(wanted)
    return ", ".join(
        f"{name} is {_shown(is_[name])}, asked for {_shown(asked[name])}"
        for name in is_
        if is_[name] != asked[name]
    )


def _shown(value: object) -> str:
    return repr(value.value if isinstance(value, Layout) else value)


def _check_name(name: str) -> None:
    if not name.strip():
        raise ConfigurationError("QueueSpec.name", name, "name the queue")
    # HTTP clients resolve such names in a path, and the SDK signs what was there before.
    if name in (".", ".."):
        raise ConfigurationError("QueueSpec.name", name, "a name needs more than dots")
    if len(quote(name, safe="", errors="replace")) > MAX_NAME_BYTES:
        remedy = f"use a shorter one: it has {MAX_NAME_BYTES} bytes in a key, as a URL spells it"
        raise ConfigurationError("QueueSpec.name", name, remedy)


def _check_options(options: Mapping[str, Any]) -> None:
    unknown = sorted(set(options) - {LAYOUT, DEDUPLICATION_WINDOW})
    if unknown:
        raise ConfigurationError(
            "QueueSpec.options",
            unknown,
            f"S3 queues know only {LAYOUT!r} and {DEDUPLICATION_WINDOW!r}",
        )


def _layout(value: object) -> Layout | None:
    if value is None:
        return None
    if value not in list(Layout):
        names = " or ".join(repr(layout.value) for layout in Layout)
        raise ConfigurationError(f"QueueSpec.options[{LAYOUT!r}]", value, f"use {names}")
    return Layout(str(value))


def _window_s(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise ConfigurationError(
            f"QueueSpec.options[{DEDUPLICATION_WINDOW!r}]", value, "use seconds, 0 for none"
        )
    return float(value)


# The queue file: one object a queue says what it is like, and that it exists.

_VERSION = 1
_MAX_TRIES = 10


@attrs.frozen
class QueueFile:
    """What a queue is like, and the version of the object that says so."""

    facts: QueueDescription
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


def encode(facts: QueueDescription) -> bytes:
    """The object's body."""
    return msgspec.json.encode(_Content(version=_VERSION, **attrs.asdict(facts)))


def decode(body: bytes, queue: str) -> QueueDescription:
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
    return QueueDescription(**fields)


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
        case FoundObject(etag, body):
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
            case WrittenObject(etag):
                return QueueFile(facts, etag)
            case Unknown(error):
                raise error
            # Refused or busy: another process was there. What it is like now, the next look shows.
    raise ConnectionFailed(keys.facts, "others keep changing the queue's settings")


def _look(keys: QueueKeys) -> Steps[QueueFile | None]:
    reply: Reply = yield Get(keys.facts)
    match reply:
        case FoundObject(etag, body):
            return QueueFile(decode(body, keys.queue), etag)
        case Unknown(error):
            raise error
        case _:
            assert isinstance(reply, Missing)
            return None


def _check_layout(found: QueueDescription, wanted: Wanted) -> None:
    if wanted.layout not in (None, found.layout):
        assert wanted.layout is not None
        raise QueueMismatch(
            found.name,
            f"its layout is {found.layout.value!r}, asked for {wanted.layout.value!r}, and a "
            f"layout cannot be changed; ask for a queue of another name, or empty this one, "
            f"stop its consumers and remove its objects",
        )

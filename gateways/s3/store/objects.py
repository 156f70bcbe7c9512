"""Requests to an object store, and its replies, as plain values.

A protocol is written in these (`Steps`) and performs nothing itself, so the same code runs
on S3 and, step by step, in a simulation.

| request     | replies                                                                          |
|-------------|----------------------------------------------------------------------------------|
| `Put`       | `WrittenObject`, `ConditionFailed` (412, or 404 of an If-Match), `WriteConflict` |
| `Get`       | `FoundObject`, `Missing`, `Same` (304)                                           |
| `Remove`    | `RemovedObject`: they are gone now, or were gone before                          |
| `List`      | `Page`                                                                           |
| any of them | `Unknown`: it may have happened, or happen yet                                   |
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, TypeVar

import attrs

from pump.errors import GatewayError


@attrs.frozen
class Put:
    """Write an object, with at most one condition. Without one it replaces whatever is there."""

    key: str
    body: bytes = attrs.field(repr=False)
    if_match: str | None = None
    """Only over the version with this ETag."""
    is_new: bool = False
    """Only if there is no object of this key."""


@attrs.frozen
class Get:
    """Read an object."""

    key: str
    unless: str | None = None
    """Not if this ETag is still that of the object."""
    has_body: bool = True
    """False to learn only whether it is there, and its ETag."""


@attrs.frozen
class Remove:
    """Remove objects, whatever they hold; free of charge, and never a decision."""

    keys: Sequence[str]


@attrs.frozen
class List:
    """List keys in their order: one page."""

    prefix: str
    after: str = ""
    """Only keys behind this one, a whole key."""
    max_count: int = 1000


Request = Put | Get | Remove | List


@attrs.frozen
class WrittenObject:
    """The object is there, in this version."""

    etag: str


@attrs.frozen
class ConditionFailed:
    """The condition does not hold. `may_be_ours` when the request was made more than once on the
    way (a retry after a lost answer): the version in its way may be our own.
    """

    may_be_ours: bool = False


@attrs.frozen
class WriteConflict:
    """Another write of this key was under way (409): nothing is decided, try again.
    `may_be_ours` when the request was made more than once on the way: an earlier copy may have been
    written, and the next try be refused because of it.
    """

    may_be_ours: bool = False


@attrs.frozen
class FoundObject:
    """An object; the body is empty when it was not asked for."""

    etag: str
    body: bytes = attrs.field(repr=False, default=b"")
    size: int = 0


@attrs.frozen
class Missing:
    """There is no such object."""


@attrs.frozen
class Same:
    """It is still the version that the asker knows."""


@attrs.frozen
class RemovedObject:
    """Whatever there was is gone."""


@attrs.frozen
class ListedObject:
    """A line of a listing."""

    key: str
    etag: str
    size: int
    modified_s: float
    """When it was written, on the store's clock, in whole seconds."""


@attrs.frozen
class Page:
    """Keys in their order."""

    entries: Sequence[ListedObject]
    is_last: bool = True


@attrs.frozen
class Unknown:
    """No answer, or one that does not say: timeout, severed connection, 500, 503."""

    error: GatewayError


Reply = (
    WrittenObject
    | ConditionFailed
    | WriteConflict
    | FoundObject
    | Missing
    | Same
    | RemovedObject
    | Page
    | Unknown
)


# Driving: performs the steps of a protocol, one request after the other.

_T = TypeVar("_T")

Steps = Generator[Request, Any, _T]
"""A protocol: yields requests, is sent their replies, returns what came of it. Pure: time and ids
are arguments. It may be left at any yield, as a process may die at any request."""


class ObjectStore(Protocol):
    """Performs requests; what it does not translate into a reply it raises (`AccessDenied`, a
    wrong bucket): that is for an operator, not for a protocol.
    """

    async def perform(self, request: Request) -> Reply:
        """One request and its reply. Cancelled, it may still have happened."""


async def drive(steps: Steps[_T], store: ObjectStore) -> _T:
    """Perform a protocol to its end. Errors of the store end it; a cancellation leaves it."""
    try:
        request = next(steps)
        while True:
            reply = await store.perform(request)
            request = steps.send(reply)
    except StopIteration as end:
        result: _T = end.value
        return result
    finally:
        steps.close()


# Server time: what the store's clock says, within bounds, whatever this machine's clock says.
#
# Every reply carries a `Date` in whole seconds. A reply dated d, asked for at s and here at r, both
# by the local clock, was dated between s and r, so the store is ahead of us by at least d - r and
# by less than d + 1 - s. Each reply narrows the bounds, and time widens them again, because no
# clock runs quite as fast as another. Leases are written by the later bound and judged by the
# earlier one, so that no process takes from an owner what the store's clock still grants it.

RESOLUTION_S = 1.0
"""A `Date` is cut to whole seconds."""
DRIFT = 0.001
"""How much faster or slower than the store's clock ours may run: twice what Linux slews a clock by
while it is being set (500 ppm), ten times what a quartz is off by."""


class ServerTime:
    """Bounds of the store's time. `local_s` must only ever grow (`Clock.now_s`).

    A clock that was set, or that stood still while the machine slept, is noticed at the next reply:
    it contradicts what was known, which is then void.
    """

    def __init__(self, local_s: Callable[[], float]) -> None:
        self._local_s = local_s
        self._least_s = float("-inf")
        self._most_s = float("inf")
        self._at_s = 0.0
        """The local time that the bounds of the store's lead are true for."""

    @property
    def is_known(self) -> bool:
        """Whether a reply has told it."""
        return self._least_s > float("-inf")

    def observe(self, date_s: float, *, sent_s: float, received_s: float) -> None:
        """Learn from a reply: its date, and the local times around it."""
        least_s = date_s - received_s
        most_s = date_s + RESOLUTION_S - sent_s + DRIFT * (received_s - sent_s)
        if not self.is_known:
            self._least_s, self._most_s, self._at_s = least_s, most_s, received_s
            return
        # Replies may be told of in another order than they came: an older one has widened since.
        at_s = max(self._at_s, received_s)
        since_s, widened_s = at_s - received_s, at_s - self._at_s
        least_s, most_s = least_s - DRIFT * since_s, most_s + DRIFT * since_s
        known_least_s = self._least_s - DRIFT * widened_s
        known_most_s = self._most_s + DRIFT * widened_s
        if least_s <= known_most_s and most_s >= known_least_s:
            least_s, most_s = max(least_s, known_least_s), min(most_s, known_most_s)
        self._least_s, self._most_s, self._at_s = least_s, most_s, at_s

    def earliest_s(self) -> float:
        """It is at least this late at the store; minus infinity before the first reply."""
        now_s = self._local_s()
        return now_s + self._least_s - DRIFT * (now_s - self._at_s)

    def latest_s(self) -> float:
        """It is at most this late at the store; infinity before the first reply."""
        now_s = self._local_s()
        return now_s + self._most_s + DRIFT * (now_s - self._at_s)

    def end_s(self, lease_s: float) -> float:
        """When a lease granted now is over at the store: not before our clock has counted it."""
        return self.latest_s() + lease_s * (1.0 + DRIFT)

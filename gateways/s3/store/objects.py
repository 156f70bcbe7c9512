"""Requests to an object store, and its replies, as plain values.

A protocol is written in these (`driving.Steps`) and performs nothing itself, so the same code runs
on S3 and, step by step, in a simulation.

| request                 | replies                                                     |
|-------------------------|-------------------------------------------------------------|
| `Put`                   | `Written`, `Refused` (412, or 404 of an If-Match), `Busy`   |
| `Get`                   | `Found`, `Missing`, `Same` (304)                            |
| `Remove`                | `Removed`: they are gone now, or were gone before           |
| `List`                  | `Page`                                                      |
| any of them             | `Unknown`: it may have happened, or happen yet              |
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
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
class Written:
    """The object is there, in this version."""

    etag: str


@attrs.frozen
class Refused:
    """The condition does not hold. `may_be_ours` when the request was made more than once on the
    way (a retry after a lost answer): the version in its way may be our own.
    """

    may_be_ours: bool = False


@attrs.frozen
class Busy:
    """Another write of this key was under way (409): nothing is decided, try again.
    `may_be_ours` when the request was made more than once on the way: an earlier copy may have been
    written, and the next try be refused because of it.
    """

    may_be_ours: bool = False


@attrs.frozen
class Found:
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
class Removed:
    """Whatever there was is gone."""


@attrs.frozen
class Entry:
    """A line of a listing."""

    key: str
    etag: str
    size: int
    modified_s: float
    """When it was written, on the store's clock, in whole seconds."""


@attrs.frozen
class Page:
    """Keys in their order."""

    entries: Sequence[Entry]
    is_last: bool = True


@attrs.frozen
class Unknown:
    """No answer, or one that does not say: timeout, severed connection, 500, 503."""

    error: GatewayError


Reply = Written | Refused | Busy | Found | Missing | Same | Removed | Page | Unknown


# Driving: performs the steps of a protocol, one request after the other.

_T = TypeVar("_T")

Steps = Generator[Request, Any, _T]
"""A protocol: yields requests, is sent their replies, returns what came of it. Pure: time and ids
are arguments. It may be left at any yield, as a process may die at any request."""


class ObjectStore(Protocol):
    """Performs requests; what it does not translate into a reply it raises (`AccessDenied`, a
    wrong bucket): that is for a person, not for a protocol.
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

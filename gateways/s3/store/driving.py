"""Driving: performs the steps of a protocol, one request after the other."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Protocol, TypeVar

from .objects import Reply, Request

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

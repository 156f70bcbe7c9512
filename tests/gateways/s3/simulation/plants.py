"""Planted bugs: the classic mistakes, made by changing what a process asks, hears and is given.

The code that runs is the real one. A plant stands between it and the store, and turns a right
request into the wrong one that a careless author would have made.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from math import ceil
from typing import Any, ClassVar

import attrs

from gateways.s3.log import commit
from gateways.s3.log.codec import unpack_entry, unpack_head
from gateways.s3.log.entries import CommitEntry, ExtendOperation, SettleOperation, Take
from gateways.s3.store.objects import (
    ConditionFailed,
    FoundObject,
    Get,
    Put,
    Remove,
    Reply,
    Request,
    ServerTime,
    Unknown,
    WriteConflict,
    WrittenObject,
)

from .changing import changed
from .machines import Machine, Process

Perform = Callable[[Request], Awaitable[Reply]]
LEASES = frozenset({"reference", "leases"})
BOTH = LEASES | {"log"}


class Plant:
    """No bug: each method does what it should."""

    name: ClassVar[str] = "nothing"
    layouts: ClassVar[frozenset[str]] = BOTH

    def furnish(self, process: Process) -> None:
        """Change what the process is given."""

    def new_id(self, make: Callable[[], str]) -> str:
        """An id."""
        return make()

    async def perform(self, perform: Perform, request: Request) -> Reply:
        """A request and its reply."""
        return await perform(request)

    def planted(self) -> AbstractContextManager[None]:
        """Change the code itself, for the time of a run."""
        return nullcontext()


class _Rewriting(Plant):
    """Changes some of the writes of leases."""

    layouts = LEASES

    def __init__(self) -> None:
        self._tokens: dict[str, str] = {}
        """Whose each version of a lease is, by its ETag."""

    async def perform(self, perform: Perform, request: Request) -> Reply:
        if isinstance(request, Put) and request.key.endswith("/lease.json"):
            kind = self._kind(request)
            return await self.write(perform, request, kind)
        return await perform(request)

    def _kind(self, put: Put) -> str:
        if not put.body:
            return "ack"
        token = str(_fields(put.body).get("token", ""))
        self._tokens[_etag(put.body)] = token
        if not token:
            return "return"
        if put.is_new:
            return "claim"
        return "renewal" if self._tokens.get(put.if_match or "") == token else "reclaim"

    async def write(self, perform: Perform, put: Put, kind: str) -> Reply:
        """Make a write of a kind."""
        raise NotImplementedError


class DeleteOnReclaim(_Rewriting):
    """Whoever finds a lease over deletes it, whatever it is by then, and makes a new one."""

    name = "delete-on-reclaim"

    async def write(self, perform: Perform, put: Put, kind: str) -> Reply:
        if kind != "reclaim":
            return await perform(put)
        await perform(Remove([put.key]))
        return await perform(Put(put.key, put.body, is_new=True))


class BlindHeartbeat(_Rewriting):
    """A lease is renewed without a condition."""

    name = "blind-heartbeat"

    async def write(self, perform: Perform, put: Put, kind: str) -> Reply:
        return await perform(attrs.evolve(put, if_match=None) if kind == "renewal" else put)


class BlindAck(_Rewriting):
    """A message is ended without a condition."""

    name = "blind-ack"

    async def write(self, perform: Perform, put: Put, kind: str) -> Reply:
        return await perform(attrs.evolve(put, if_match=None) if kind == "ack" else put)


class AckByDeleting(_Rewriting):
    """A message is ended by deleting its lease, as if nobody else could have one."""

    name = "ack-by-deleting"

    async def write(self, perform: Perform, put: Put, kind: str) -> Reply:
        if kind != "ack":
            return await perform(put)
        reply = await perform(Remove([put.key]))
        return reply if isinstance(reply, Unknown) else WrittenObject(_etag(b""))


class EqualBodies(Plant):
    """No nonce, no token, times in tens of seconds: bodies are equal, and so are ETags (ABA)."""

    name = "equal-bodies"

    def furnish(self, process: Process) -> None:
        process.time = _CoarseTime(process.machine.local_s)

    def new_id(self, make: Callable[[], str]) -> str:
        return "same"


class LocalClock(Plant):
    """Leases are written and judged by the wall clock of the machine."""

    name = "local-clock"

    def furnish(self, process: Process) -> None:
        process.time = _WallTime(process.machine)


class BusyIsRefused(Plant):
    """A 409 is taken for a 412."""

    name = "busy-is-refused"
    layouts = LEASES

    async def perform(self, perform: Perform, request: Request) -> Reply:
        reply = await perform(request)
        return ConditionFailed() if isinstance(reply, WriteConflict) else reply


class OwnRefusal(Plant):
    """A 412 by one's own earlier copy is taken for that of another."""

    name = "own-refusal"
    layouts = LEASES

    async def perform(self, perform: Perform, request: Request) -> Reply:
        reply = await perform(request)
        return ConditionFailed() if isinstance(reply, ConditionFailed) else reply


class BusyIsUndecided(Plant):
    """A 409 of a request that was made twice is taken for one that was made once."""

    name = "busy-is-undecided"
    layouts = LEASES

    async def perform(self, perform: Perform, request: Request) -> Reply:
        reply = await perform(request)
        return WriteConflict() if isinstance(reply, WriteConflict) else reply


class DoubtIsRefusal(Plant):
    """A write without an answer is taken for one that did not happen."""

    name = "doubt-is-refusal"
    layouts = LEASES

    async def perform(self, perform: Perform, request: Request) -> Reply:
        reply = await perform(request)
        is_doubt = isinstance(request, Put) and isinstance(reply, Unknown)
        return ConditionFailed() if is_doubt else reply


class Unconfirmed(Plant):
    """A claim of a lease that was not there is not confirmed: its message may be long done."""

    name = "unconfirmed"
    layouts = LEASES

    def __init__(self) -> None:
        self._messages: dict[str, FoundObject] = {}

    async def perform(self, perform: Perform, request: Request) -> Reply:
        if isinstance(request, Put) and "/messages/" in request.key and request.body:
            found = FoundObject(_etag(request.body), request.body, len(request.body))
            self._messages[request.key] = found
        if isinstance(request, Get) and not request.has_body and request.key in self._messages:
            return self._messages[request.key]
        return await perform(request)


class _BlindCommit(Plant):
    """Some commits are written without a condition."""

    layouts = frozenset({"log"})

    def is_meant(self, entry: CommitEntry) -> bool:
        """Whether it is one of those."""
        raise NotImplementedError

    async def perform(self, perform: Perform, request: Request) -> Reply:
        if isinstance(request, Put) and request.key.endswith("log/head") and request.if_match:
            head = unpack_head(request.body, request.key)
            if self.is_meant(unpack_entry(head.recent[-1], request.key)):
                request = attrs.evolve(request, if_match=None)
        return await perform(request)


class BlindLogAck(_BlindCommit):
    """An end is committed over whatever the head is by then."""

    name = "blind-commit-of-acks"

    def is_meant(self, entry: CommitEntry) -> bool:
        return any(isinstance(op, SettleOperation) for op in entry.ops)


class BlindLogHeartbeat(_BlindCommit):
    """An extension is committed over whatever the head is by then."""

    name = "blind-commit-of-heartbeats"

    def is_meant(self, entry: CommitEntry) -> bool:
        return any(isinstance(op, ExtendOperation) for op in entry.ops)


class BlindLogClaim(_BlindCommit):
    """A claim is committed over whatever the head is by then."""

    name = "blind-commit-of-claims"

    def is_meant(self, entry: CommitEntry) -> bool:
        return any(isinstance(op, Take) for op in entry.ops)


class ForgottenCommit(Plant):
    """A commit that was refused is made again, without a look whether it was refused by itself."""

    name = "forgotten-commit"
    layouts = frozenset({"log"})

    def planted(self) -> AbstractContextManager[None]:
        return changed(commit, find_commit=lambda *_: None)


class _CoarseTime(ServerTime):
    """Right, but in steps: nobody is granted less."""

    def latest_s(self) -> float:
        latest_s = super().latest_s()
        return ceil(latest_s / 10.0) * 10.0 if self.is_known else latest_s


class _WallTime(ServerTime):
    """What the machine says, and nothing else."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine.local_s)
        self._machine = machine

    def earliest_s(self) -> float:
        return self._machine.wall_s()

    def latest_s(self) -> float:
        return self._machine.wall_s()


PLANTS: dict[str, type[Plant]] = {
    plant.name: plant
    for plant in (
        Plant,
        DeleteOnReclaim,
        BlindHeartbeat,
        BlindAck,
        AckByDeleting,
        EqualBodies,
        LocalClock,
        BusyIsRefused,
        OwnRefusal,
        BusyIsUndecided,
        DoubtIsRefusal,
        Unconfirmed,
        BlindLogAck,
        BlindLogHeartbeat,
        BlindLogClaim,
        ForgottenCommit,
    )
}


def _fields(body: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(body)
    return fields


def _etag(body: bytes) -> str:
    return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'

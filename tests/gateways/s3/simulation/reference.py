"""The smallest correct queue of leases: what the simulation itself is proved on.

A message is an object of its own, `messages/{id}`, and has a lease beside it:

| `pending/{id}/lease.json`   | means                                | who may write next        |
|-----------------------------|--------------------------------------|---------------------------|
| is missing                  | nobody has had it, or it is all over | anyone, if new            |
| a token and an expiry       | its owner's                          | owner; anyone when over   |
| a time to come back         | handed back                          | anyone when due           |
| is empty                    | done                                 | nobody                    |

A message that is done is emptied before its lease is removed, and is never removed itself.
It knows no order, no dead letters and no caches, and looks at everything each time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from gateways.s3.layout import QueueDescription, S3QueueSettings, Surroundings
from gateways.s3.store.objects import (
    ConditionFailed,
    FoundObject,
    Get,
    List,
    Missing,
    Page,
    Put,
    Remove,
    Steps,
    Unknown,
    WriteConflict,
    WrittenObject,
    drive,
)
from pump.errors import InvalidReceipt, Throttled
from pump.message import Delivery, Message
from pump.outcome import Abandon, Ack, Action, Refusal, Settlement
from pump.ports import QueueStats

MAX_TRIES = 8


class ReferenceQueue:
    """A `StoredQueue` of that kind."""

    def __init__(
        self, facts: QueueDescription, surroundings: Surroundings, settings: S3QueueSettings
    ) -> None:
        self._facts = facts
        self._around = surroundings
        self._held: dict[str, Held] = {}
        """What each of our receipts is bound to."""
        self._messages: dict[str, Message] = {}
        """Those that were read: they never change."""

    async def send(self, messages: Sequence[Message], *, delay_s: float) -> list[str]:
        around = self._around
        for message in messages:
            body = json.dumps([message.id, message.body.decode()]).encode()
            key = f"{around.keys.messages}{around.new_id()}"
            if await drive(decide(Put(key, body, is_new=True)), around.store) is None:
                raise Throttled("the store")
        return [message.id for message in messages]

    async def receive(self, *, max_count: int, wait_s: float, lease_s: float) -> list[Delivery]:
        around, found = self._around, list[Delivery]()
        page = await around.store.perform(List(around.keys.messages))
        for entry in page.entries if isinstance(page, Page) else ():
            if entry.size and len(found) < max_count:
                name = entry.key.removeprefix(around.keys.messages)
                delivery = await self._claim(name, lease_s)
                found += [delivery] if delivery else []
        if not found and wait_s:
            await around.clock.sleep(wait_s)
        return found

    async def _claim(self, name: str, lease_s: float) -> Delivery | None:
        around = self._around
        began_s, token = around.clock.now_s(), around.new_id()
        expires_s = around.time.end_s(lease_s)
        if not around.time.is_known:
            return None
        steps = claim(around, name, {"token": token, "expires_s": expires_s})
        message = self._messages.get(name) or await self._read(name)
        claimed = await drive(steps, around.store) if message is not None else None
        if claimed is None or message is None:
            return None
        self._held[token] = Held(claimed.etag, began_s + lease_s)
        return Delivery(
            message=message,
            queue=self._facts.name,
            receipt=f"{name} {token}",
            attempt=claimed.attempt,
            lease_expires_at_s=began_s + lease_s,
        )

    async def _read(self, name: str) -> Message | None:
        found = await self._around.store.perform(Get(f"{self._around.keys.messages}{name}"))
        if not isinstance(found, FoundObject) or not found.size:
            return None
        id, body = json.loads(found.body)
        self._messages[name] = Message(id=id, body=body.encode())
        return self._messages[name]

    async def settle(self, settlements: Sequence[Settlement]) -> list[Refusal]:
        refusals = []
        for each in settlements:
            body = _settled(each.action, each.delivery.attempt, self._around)
            if not await self._write(each.delivery, body, None):
                refusals.append(_refusal(each.delivery))
            elif not body:
                name = each.delivery.receipt.split()[0]
                await drive(clean_up(self._around, name), self._around.store)
        return refusals

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> list[Refusal]:
        refusals = []
        for delivery in deliveries:
            body = {
                "token": delivery.receipt.split()[1],
                "expires_s": self._around.time.end_s(lease_s),
                "attempt": delivery.attempt,
                "nonce": self._around.new_id(),
            }
            until_s = self._around.clock.now_s() + lease_s
            if not await self._write(delivery, json.dumps(body).encode(), until_s):
                refusals.append(_refusal(delivery))
        return refusals

    async def _write(self, delivery: Delivery, body: bytes, until_s: float | None) -> bool:
        """Over the version that our receipt is bound to; the receipt is then bound to the new."""
        name, token = delivery.receipt.split()
        held = self._held.pop(token, None)
        if held is None:
            return False
        put = Put(self._around.keys.lease(name), body, if_match=held.etag)
        steps = decide(put, lambda: self._around.clock.now_s() < held.until_s)
        etag = await drive(steps, self._around.store)
        if etag is not None and until_s is not None:
            self._held[token] = Held(etag, until_s)
        return etag is not None

    async def stats(self) -> QueueStats:
        raise NotImplementedError

    async def peek(self, *, max_count: int) -> list[Message]:
        raise NotImplementedError

    async def purge(self) -> int:
        raise NotImplementedError

    async def adopt(self, facts: QueueDescription) -> None:
        raise NotImplementedError

    async def aclose(self) -> None:
        pass


@attrs.frozen
class Held:
    """A version that is ours, and until when by our own clock."""

    etag: str
    until_s: float


@attrs.frozen
class Claimed:
    etag: str
    attempt: int


def claim(around: Surroundings, name: str, body: dict[str, Any]) -> Steps[Claimed | None]:
    """Take the lease of a message if nobody has it; its message, or None."""
    key = around.keys.lease(name)
    found = yield Get(key)
    match found:
        case Missing():
            attempt, etag = 1, None
        case FoundObject(size=0):
            yield from clean_up(around, name)
            return None
        case FoundObject():
            known = json.loads(found.body)
            if around.time.earliest_s() < known["expires_s"]:
                return None
            attempt, etag = known["attempt"] + 1, found.etag
        case _:
            return None
    written = json.dumps({**body, "attempt": attempt}).encode()
    mine = yield from decide(Put(key, written, if_match=etag, is_new=etag is None))
    if mine is None:
        return None
    # A lease that is new may be that of a message which was done and cleaned up meanwhile.
    still_there = yield Get(f"{around.keys.messages}{name}", has_body=False)
    if not isinstance(still_there, FoundObject):
        return None
    if not still_there.size:
        yield Remove([key])
        return None
    return Claimed(mine, attempt)


def clean_up(around: Surroundings, name: str) -> Steps[None]:
    """Empty a message that is done, then remove its lease.

    Removed, it could come again: by a copy of its `Put` that is still on its way.
    """
    emptied = yield Put(f"{around.keys.messages}{name}", b"")
    if isinstance(emptied, WrittenObject):
        yield Remove([around.keys.lease(name)])


def decide(put: Put, is_ours_still: Callable[[], bool] = lambda: False) -> Steps[str | None]:
    """Make one conditional write, whatever happens to it; its ETag, or None when it was refused.

    An end says nothing about whose it is. It is ours when nobody else can have had the message:
    then nothing but our own end can have led to what is found.
    """
    is_in_doubt = False
    for _ in range(MAX_TRIES):
        match (yield put):
            case WrittenObject(etag):
                return str(etag)
            case ConditionFailed(may_be_ours) if not (may_be_ours or is_in_doubt):
                return None
            case WriteConflict(may_be_ours):
                is_in_doubt = is_in_doubt or may_be_ours
                continue
        is_in_doubt = True
        there = yield Get(put.key)
        if isinstance(there, Unknown) or _is_open(there, put):
            continue
        if isinstance(there, FoundObject) and there.body == put.body != b"":
            return there.etag
        return "" if not put.body and is_ours_still() else None
    raise Throttled("the store")


def _is_open(there: FoundObject | Missing, put: Put) -> bool:
    """Whether the condition of a write still holds."""
    return put.if_match == (there.etag if isinstance(there, FoundObject) else None)


def _settled(action: Action, attempt: int, around: Surroundings) -> bytes:
    if isinstance(action, Ack):
        return b""
    delay_s = 0.0 if isinstance(action, Abandon) else action.delay_s
    counted = attempt - isinstance(action, Abandon)
    due_s = around.time.latest_s() + delay_s
    return json.dumps({"nonce": around.new_id(), "expires_s": due_s, "attempt": counted}).encode()


def _refusal(delivery: Delivery) -> Refusal:
    return Refusal(delivery, InvalidReceipt(delivery.queue, delivery.receipt))

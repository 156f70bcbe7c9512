"""The dispatcher: carries out the requests of other processes on the engine, each once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import assert_never

from pump.errors import PumpError, StorageFailed
from pump.message import Delivery

from .._engine.engine import QueueEngine
from .._engine.journal import AnsweredRequest as Origin
from .._engine.ports import EngineSessions, Grant
from . import codec, wire

Answered = Callable[[wire.Answer], None]
_NOTHING = b""

# Stored answers are deleted this many at a time.
_FORGET_AT = 256


class RequestDispatcher:
    """Runs requests as tasks and knows which were carried out before."""

    def __init__(self, engine: QueueEngine, replies: dict[tuple[str, int], bytes]) -> None:
        self._engine = engine
        self._replies: dict[str, dict[int, bytes]] = {}
        self._running: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._waiting: set[tuple[str, int]] = set()
        for (owner, number), reply in sorted(replies.items()):
            self._replies.setdefault(owner, {})[number] = reply

    def submit(self, owner: str, request: wire.Request, answered: Answered) -> None:
        """Start a request; requests of one owner take effect in the order submitted."""
        key = (owner, request.number)
        task = asyncio.create_task(
            self._answer(owner, request, answered), name=f"pumphouse-request-{request.number}"
        )
        self._running[key] = task
        if isinstance(request, wire.Waiting):
            self._waiting.add(key)
        task.add_done_callback(lambda _: self._ended(key, task, answered))

    async def leave(self, owner: str) -> None:
        """Stop an owner's waiting requests, unanswered, and finish the rest."""
        theirs = {key: task for key, task in self._running.items() if key[0] == owner}
        await self._stop(theirs)

    async def aclose(self) -> None:
        """Stop every waiting request, unanswered, and finish the rest."""
        await self._stop(dict(self._running))

    async def forget(self, owner: str) -> None:
        """End the leases and locks of an owner that is gone, and drop what was kept for it."""
        await self._engine.end_leases(owner)
        if self._replies.pop(owner, None):
            await self._drop_replies(owner, 2**62)

    async def _stop(self, tasks: dict[tuple[str, int], asyncio.Task[None]]) -> None:
        for key, task in tasks.items():
            if key in self._waiting:
                task.cancel()
        if tasks:
            await asyncio.wait(tasks.values())

    def _ended(self, key: tuple[str, int], task: asyncio.Task[None], answered: Answered) -> None:
        if self._running.get(key) is task:
            del self._running[key]
            self._waiting.discard(key)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            # A mistake of ours: the client must not wait for ever, and we want to hear of it.
            answered(wire.RemoteFailure(key[1], type(error).__name__, []))
            task.get_loop().call_exception_handler(
                {"message": "a request failed unexpectedly", "exception": error, "task": task}
            )

    async def _answer(self, owner: str, request: wire.Request, answered: Answered) -> None:
        try:
            result = await self._carry_out(owner, request)
        except PumpError as error:
            answered(wire.failure(request.number, error))
        else:
            answered(wire.PackedReply(request.number, result))

    async def _carry_out(self, owner: str, request: wire.Request) -> bytes:
        engine = self._engine
        match request:
            case wire.SendRequest() | wire.SettleRequest():
                return await self._once(owner, request)
            case wire.Receive():
                return await self._receive(owner, request)
            case (
                wire.AcceptSession()
                | wire.ReceiveInSession()
                | wire.RenewSession()
                | wire.ReleaseSession()
            ):
                return await answer_session(engine, owner, request)
            case wire.ExtendRequest(_, queue, receipts, lease_s, asked_at_s):
                refused = await engine.extend(
                    queue, receipts, lease_s=lease_s, asked_at_s=asked_at_s
                )
                return codec.pack_positions(refused)
            case wire.Declare(_, settings, make, is_name_only):
                wanted = codec.unpack_settings(settings)
                await engine.declare(wanted, make, is_name_only=is_name_only)
                return _NOTHING
            case wire.Stats():
                return await self._stats()
            case wire.Peek(_, queue, max_count):
                messages = await engine.peek(queue, max_count=max_count)
                return wire.encode([codec.pack(message) for message in messages])
            case wire.PurgeRequest(_, queue):
                return wire.encode(await engine.purge(queue))
            case wire.Cancel(_, target):
                await self._cancel(owner, target)
                return _NOTHING
            case wire.Bye():
                await self.forget(owner)
                return _NOTHING
            case wire.Hello():
                return _NOTHING
            case _:
                assert_never(request)

    async def _once(self, owner: str, request: wire.SendRequest | wire.SettleRequest) -> bytes:
        replies = self._replies.setdefault(owner, {})
        reply = replies.get(request.number)
        if reply is None:
            reply = await self._send_or_settle(request, Origin(owner, request.number))
            replies[request.number] = reply
        await self._forget_below(owner, request.done_below)
        return reply

    async def _send_or_settle(
        self, request: wire.SendRequest | wire.SettleRequest, origin: Origin
    ) -> bytes:
        if isinstance(request, wire.SendRequest):
            messages = [codec.unpack(packed) for packed in request.packed]
            await self._engine.send(
                request.queue, messages, delay_s=request.delay_s, request=origin
            )
            return _NOTHING
        actions = wire.unpack_actions(request.actions)
        refused = await self._engine.settle(
            request.queue,
            request.receipts,
            actions,
            request=origin,
            asked_at_s=request.asked_at_s,
        )
        return codec.pack_positions(refused)

    async def _forget_below(self, owner: str, below: int) -> None:
        replies = self._replies.get(owner, {})
        old = [number for number in replies if number < below]
        if len(old) >= _FORGET_AT:
            for number in old:
                del replies[number]
            await self._drop_replies(owner, below)

    async def _drop_replies(self, owner: str, below: int) -> None:
        # Rows that stay behind on a full disk go when their owner is known to be dead.
        with suppress(StorageFailed):
            await self._engine.forget(owner, below=below)

    async def _receive(self, owner: str, request: wire.Receive) -> bytes:
        deliveries = (
            self._engine.served(request.queue, owner, request.number) if request.is_repeat else []
        ) or await self._engine.receive(
            request.queue,
            max_count=request.max_count,
            wait_s=request.wait_s,
            lease_s=request.lease_s,
            owner=owner,
            request=request.number,
        )
        return pack_deliveries(deliveries, self._engine.clock.now_s())

    async def _stats(self) -> bytes:
        return wire.encode(
            [
                wire.Count(q.name, q.visible, q.in_flight, q.delayed, q.oldest_age_s)
                for q in await self._engine.queues()
            ]
        )

    async def _cancel(self, owner: str, target: int) -> None:
        task = self._running.get((owner, target))
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._engine.abandon_request(owner, target)
        await EngineSessions(self._engine, owner).abandon_request(target)


# The requests of other processes about sessions, carried out on the engine.
#
# Asked again of the next host, an accept finds the lock it got, and a receive what it was given, by
# the request's number; to renew or release twice does no harm.

SessionRequest = (
    wire.AcceptSession | wire.ReceiveInSession | wire.RenewSession | wire.ReleaseSession
)


async def answer_session(engine: QueueEngine, owner: str, request: SessionRequest) -> bytes:
    """Carry a request out, and pack its result."""
    sessions = EngineSessions(engine, owner)
    now_s = engine.clock.now_s
    match request:
        case wire.AcceptSession():
            grant = await _accept(sessions, request)
            return wire.encode(None if grant is None else _packed(grant, now_s()))
        case wire.ReceiveInSession():
            return pack_deliveries(await _receive(engine, sessions, owner, request), now_s())
        case wire.RenewSession(_, queue, _, _, lease_s, asked_at_s):
            until_s = await sessions.renew(
                queue, _grant_of(request), lease_s=lease_s, asked_at_s=asked_at_s
            )
            return wire.encode(until_s - now_s())
        case wire.ReleaseSession(_, queue):
            await sessions.release(queue, _grant_of(request))
            return b""
        case _:
            assert_never(request)


def pack_deliveries(deliveries: Sequence[Delivery], now_s: float) -> bytes:
    """What a receive returns, as it travels."""
    return wire.encode(
        [
            wire.Handed(
                codec.pack(d.message),
                d.receipt,
                d.attempt,
                d.lease_expires_at_s - now_s,
                d.broker_id,
                d.lease_expires_at_s,
            )
            for d in deliveries
        ]
    )


async def _accept(sessions: EngineSessions, request: wire.AcceptSession) -> Grant | None:
    accepted = sessions.granted(request.queue, request.number) if request.is_repeat else None
    return accepted or await sessions.accept(
        request.queue,
        request.session,
        wait_s=request.wait_s,
        lease_s=request.lease_s,
        request=request.number,
    )


async def _receive(
    engine: QueueEngine, sessions: EngineSessions, owner: str, request: wire.ReceiveInSession
) -> Sequence[Delivery]:
    served = engine.served(request.queue, owner, request.number) if request.is_repeat else []
    return served or await sessions.receive(
        request.queue,
        _grant_of(request),
        max_count=request.max_count,
        wait_s=request.wait_s,
        request=request.number,
    )


def _grant_of(
    request: wire.ReceiveInSession | wire.RenewSession | wire.ReleaseSession,
) -> Grant:
    return Grant(request.session, request.token, 0.0)


def _packed(grant: Grant, now_s: float) -> wire.GrantedSession:
    return wire.GrantedSession(
        grant.session, grant.token, grant.expires_at_s - now_s, grant.expires_at_s
    )

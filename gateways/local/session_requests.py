"""The requests of other processes about sessions, carried out on the engine.

Asked again of the next host, an accept finds the lock it got, and a receive what it was given, by
the request's number; to renew or release twice does no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from pump.message import Delivery

from .._engine.broker import Grant
from .._engine.engine import Engine
from .._engine.sessions import EngineSessions
from . import codec, wire

SessionRequest = (
    wire.AcceptSession | wire.ReceiveInSession | wire.RenewSession | wire.ReleaseSession
)


async def answer_session(engine: Engine, owner: str, request: SessionRequest) -> bytes:
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
    engine: Engine, sessions: EngineSessions, owner: str, request: wire.ReceiveInSession
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


def _packed(grant: Grant, now_s: float) -> wire.Granted:
    return wire.Granted(grant.session, grant.token, grant.expires_at_s - now_s, grant.expires_at_s)

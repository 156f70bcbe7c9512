"""`OnceOnly`: a message that was handled before is not handled again.

Claim → handle → mark as done, and what happens when the process dies

- before the claim: the message is delivered again and handled;
- between claim and mark: the claim runs out with its lease, then the message is handled again;
- between mark and acknowledgement: the message is delivered again and skipped.

So a handling that completed is never repeated, and one that did not is. Effects of a handler
that dies after causing them and before the mark are repeated, unless they are part of the
mark's own transaction (`SqliteInbox.transaction`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal, Self, assert_never

import attrs

from pump.clock import Timer
from pump.context import Context
from pump.errors import ConfigurationError
from pump.message import new_id
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.outcome import DeferMessage, RejectMessage
from pump.pipeline import Proceed
from pump.stores.inbox import HELD, AlreadyDone, Busy, Claimed, Held, Inbox

from .base import positive

_log = get_logger("pump.handlers")
Key = Callable[[Any, Context], str]


class DuplicateMessage(RejectMessage):
    """The message was handled before: `OnceOnly(on_duplicate="raise")` dead-letters it."""


def _lease(given: timedelta) -> timedelta:
    return positive("OnceOnly.lease", given)


@attrs.frozen
class OnceOnly:
    """Handles each key once; a key is the handler's name and the message's id.

    `key(request, context)` replaces the message's id (an order number, say), `scope` the
    handler's name (which changes when the handler is renamed or moved). A key that was done is
    skipped, its message acknowledged, or raised as `DuplicateMessage`. A key that another is
    handling right now is deferred until their claim would end, by a lease at most: skipping it
    would acknowledge a message whose other run may yet fail. A handler that fails, signals or is
    cancelled frees its key. The claim lasts for `lease` and is extended while the handler runs.
    """

    inbox: Inbox
    key: Key | None = attrs.field(default=None, kw_only=True)
    scope: str | None = attrs.field(default=None, kw_only=True)
    on_duplicate: Literal["skip", "raise"] = attrs.field(default="skip", kw_only=True)
    lease: timedelta = attrs.field(default=timedelta(seconds=30), kw_only=True, converter=_lease)

    def __attrs_post_init__(self) -> None:
        choice: object = self.on_duplicate
        if choice not in ("skip", "raise"):
            raise ConfigurationError("OnceOnly.on_duplicate", choice, 'use "skip" or "raise"')
        if not callable(getattr(self.inbox, "claim", None)):
            raise ConfigurationError(
                "OnceOnly.inbox", self.inbox, "give MemoryInbox() or SqliteInbox(path)"
            )
        if self.key is not None and not callable(self.key):
            raise ConfigurationError("OnceOnly.key", self.key, "give a function (request, context)")
        if self.scope == "":
            raise ConfigurationError("OnceOnly.scope", self.scope, "name the work, or leave it out")

    async def __call__(self, request: Any, context: Context, proceed: Proceed) -> Any:
        held = Held(
            self.inbox,
            self._key_of(request, context),
            owner=new_id(),
            lease_s=self.lease.total_seconds(),
        )
        try:
            if not await self._claim(held, context):
                return None
            result = await self._handle(held, request, context, proceed)
        except BaseException:
            # Also when the claim itself was interrupted: it may have been written all the same.
            await self._release(held)
            raise
        await self._record(held, context)
        return result

    def _key_of(self, request: Any, context: Context) -> str:
        if self.key is not None:
            key = self.key(request, context)
        elif context.message is not None:
            key = context.message.id
        else:
            raise ConfigurationError(
                "OnceOnly.key",
                None,
                "a request sent inside the process has no message id; give one",
            )
        made: object = key
        if not isinstance(made, str) or not made:
            raise ConfigurationError("OnceOnly.key", type(key), "return text that is not empty")
        return f"{self.scope or context.handler}:{key}"

    async def _claim(self, held: Held, context: Context) -> bool:
        now_s = context.clock.time_s()
        claim = await self.inbox.claim(
            held.key, owner=held.owner, now_s=now_s, lease_s=self.lease.total_seconds()
        )
        match claim:
            case Claimed():
                return True
            case Busy(expires_at_s=expires_at_s):
                _log.info(vocabulary.DUPLICATE_DEFERRED, handler=context.handler)
                # Never by more than a lease: a clock that was set back leaves claims that seem to
                # last for a day, and the inbox bounds those.
                rest_s = min(max(0.0, expires_at_s - now_s), self.lease.total_seconds())
                raise DeferMessage(timedelta(seconds=rest_s))
            case AlreadyDone():
                if self.on_duplicate == "raise":
                    raise DuplicateMessage(f"{context.handler} handled it before")
                _log.info(vocabulary.DUPLICATE_SKIPPED, handler=context.handler)
                return False
            case _:
                assert_never(claim)

    async def _handle(self, held: Held, request: Any, context: Context, proceed: Proceed) -> Any:
        held_now: list[Held] = context.bag.setdefault(HELD, [])
        held_now.append(held)
        try:
            async with Heartbeat(held, context, self.lease.total_seconds()):
                result = await proceed(request)
        finally:
            held_now.remove(held)
        # A signal that a middleware further in swallowed gets out in the end (law 8), and its
        # message comes again: it must not find itself marked as done.
        if context.signal is not None:
            raise context.signal
        return result

    async def _release(self, held: Held) -> None:
        try:
            await self.inbox.release(held.key, owner=held.owner)
        except Exception as error:  # broad: must not hide how handling ended; the claim runs out
            _log.warning(vocabulary.CLAIM_RELEASE_FAILED, error=type(error).__name__)

    async def _record(self, held: Held, context: Context) -> None:
        if held.is_recorded:
            return
        try:
            await self.inbox.complete(held.key, owner=held.owner, now_s=context.clock.time_s())
        except Exception as error:  # broad: the work is done; to fail now would repeat it
            _log.error(
                vocabulary.COMPLETION_UNRECORDED,
                handler=context.handler,
                error=type(error).__name__,
            )


# Heartbeat: keeps a claim alive while its handler runs.

_BEATS_PER_LEASE = 3


@attrs.define(eq=False)
class Heartbeat:
    """`async with Heartbeat(…):` extends the claim three times a lease until the block ends.

    A handler that is done before the first beat pays for one timer. A beat that fails is
    followed by the next; a claim that another owner has taken is let go, with a warning.
    """

    held: Held
    context: Context
    lease_s: float
    _timer: Timer | None = attrs.field(default=None, init=False)
    _task: asyncio.Task[None] | None = attrs.field(default=None, init=False)

    async def __aenter__(self) -> Self:
        self._timer = self.context.clock.call_later(self.lease_s / _BEATS_PER_LEASE, self._start)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(
            self._beat(), name=f"heartbeat of {self.context.handler}"
        )

    async def _beat(self) -> None:
        while await self._extend():
            await self.context.clock.sleep(self.lease_s / _BEATS_PER_LEASE)
        _log.warning(vocabulary.CLAIM_LOST, handler=self.context.handler)

    async def _extend(self) -> bool:
        try:
            return await self.held.inbox.extend(
                self.held.key,
                owner=self.held.owner,
                now_s=self.context.clock.time_s(),
                lease_s=self.lease_s,
            )
        except Exception as error:  # broad: the store is the application's; the next beat may do
            _log.warning(
                vocabulary.CLAIM_EXTENSION_FAILED,
                handler=self.context.handler,
                error=type(error).__name__,
            )
            return True

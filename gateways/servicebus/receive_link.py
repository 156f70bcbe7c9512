"""The receive link of a queue: all receives of this gateway have their messages through it.

| the link is | when                        | and then                                     |
|-------------|-----------------------------|----------------------------------------------|
| closed      | no receive waits            | no credit is out: nothing comes              |
| pulling     | a receive waits             | in short slices, as much as is asked for     |
| lingering   | no receive waits any more   | what is left of the credit stays for a while |
| closing     | none has come meanwhile,    | credit is taken back; what comes is released |
|             | or the gateway is closed    |                                              |

A receive ends between two slices, never within one: what comes in a slice has a receive to go to.
Only a cancelled receive leaves messages behind. They go to the next that waits, and back to the
queue when none has come before the credit is taken back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import attrs

from pump.clock import Clock
from pump.errors import ConnectionFailed, GatewayError, LeaseLost, PumpError

from .connection import ServiceBusConnections
from .errors import ServiceBusTarget
from .names import RECEIVE_BATCH, SETTLE_BATCH
from .wire import ServiceBusArrival, handed_back

if TYPE_CHECKING:
    from .connection import Handle
    from .sdk import Receiver


LEAST_SLICE_S = 0.02
LINGER_S = 0.3
"""How long credit outlives the last receive: another follows soon, as a rule."""
SILENT_S = 60.0
"""How long nothing may come before the link is made anew: one that has died without a word gives as
little as an empty queue does."""


@attrs.frozen
class Pulled:
    """A message, and when its lock began at the earliest."""

    arrival: ServiceBusArrival
    locked_at_s: float


@attrs.define(eq=False)
class _Waiter:
    count: int
    ends_at_s: float
    answer: asyncio.Future[list[Pulled]]
    has_looked: bool = False


def slice_s(look_s: float, left_s: float, *, has_looked: bool) -> float:
    """How long to pull for a receive, which cannot be cancelled: a whole look first, and then no
    longer than is left.
    """
    return min(max(left_s, LEAST_SLICE_S), look_s) if has_looked else look_s


class ReceiveLink:
    """The receives of one queue. `discard` hands back what no receive waits for."""

    def __init__(
        self,
        connections: ServiceBusConnections,
        queue: str,
        discard: Callable[[Sequence[Pulled]], Awaitable[object]],
    ) -> None:
        self._connections = connections
        self._clock: Clock = connections.clock
        self._queue = queue
        self._discard = discard
        self._look_s = connections.settings.look_s
        self._where = ServiceBusTarget(connections.address, "receiving", queue)
        self._waiters: list[_Waiter] = []
        self._unclaimed: list[Pulled] = []
        self._pulling: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._is_closing = False
        self._heard_at_s: float | None = None

    async def receive(self, count: int, ends_at_s: float) -> list[Pulled]:
        """What comes until then, after at least one look at the queue."""
        answer: asyncio.Future[list[Pulled]] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(min(count, RECEIVE_BATCH), ends_at_s, answer)
        self._waiters.append(waiter)
        self._woken.set()
        self._pull_on()
        try:
            # Shielded: what is shared out meanwhile must find an answer that can be set.
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif answer.exception() is None:
                self._share(answer.result())
                self._pull_on()
            raise

    async def aclose(self) -> None:
        """Take back the credit, hand back what no receive waits for, and tell those that wait."""
        self._is_closing = True
        self._woken.set()
        if self._pulling is not None:
            await asyncio.wait([self._pulling])
        self._is_closing = False

    def _pull_on(self) -> None:
        if self._pulling is None or self._pulling.done():
            self._pulling = self._connections.chores.start(self._pull(), "pull")

    async def _pull(self) -> None:
        from . import sdk

        try:
            handle = self._connections.receiver(self._queue)
            while self._waiters or self._unclaimed:
                while not self._is_closing and (self._waiters or await self._is_woken()):
                    await self._slice()
                await self._hand_back()
                await handle.call(self._where, sdk.revoke)
                if self._is_closing:
                    raise ConnectionFailed(self._where.address, "the gateway is closed")
        except PumpError as error:
            await self._hand_back()
            self._tell(error)
        except BaseException as error:
            # This task is not awaited: receives would wait for its messages for ever.
            self._tell(ConnectionFailed(self._where.address, repr(error)))
            raise

    def _tell(self, error: PumpError) -> None:
        """Tell the receives that it failed. The task's last step, without an await in
        between: a later receive finds no pull, and begins one.
        """
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.answer.set_exception(error)

    async def _is_woken(self) -> bool:
        """Whether a receive comes before the credit is taken back."""
        self._woken.clear()
        try:
            async with self._clock.timeout(LINGER_S):
                await self._woken.wait()
        except TimeoutError:
            pass
        return bool(self._waiters)

    async def _slice(self) -> None:
        from . import sdk

        unclaimed, self._unclaimed = self._unclaimed, []
        self._share(unclaimed)
        looking = list(self._waiters)
        if not looking:  # served, or cancelled since
            return
        wanted = min(sum(waiter.count for waiter in looking), RECEIVE_BATCH)
        began_at_s = self._clock.now_s()
        wait_s = min(
            slice_s(self._look_s, waiter.ends_at_s - began_at_s, has_looked=waiter.has_looked)
            for waiter in looking
        )
        handle = self._connections.receiver(self._queue)
        arrivals = await handle.call(
            self._where, lambda link: sdk.receive(link, wanted, wait_s, self._clock)
        )
        self._share([Pulled(each, began_at_s) for each in arrivals])
        now_s = self._clock.now_s()
        if arrivals or self._heard_at_s is None:
            self._heard_at_s = now_s
        elif now_s - self._heard_at_s >= SILENT_S:
            self._heard_at_s = now_s
            await handle.replace()
        for waiter in looking:
            waiter.has_looked = waiter.has_looked or now_s - began_at_s >= self._look_s
            is_over = waiter.has_looked and waiter.ends_at_s <= now_s
            if is_over and waiter in self._waiters:
                self._waiters.remove(waiter)
                waiter.answer.set_result([])

    def _share(self, pulled: Sequence[Pulled]) -> None:
        """Give the first what it asked for, and the next the rest."""
        rest = list(pulled)
        while rest and self._waiters:
            waiter = self._waiters.pop(0)
            taken, rest = rest[: waiter.count], rest[waiter.count :]
            waiter.answer.set_result(taken)
        self._unclaimed += rest

    async def _hand_back(self) -> None:
        unclaimed, self._unclaimed = self._unclaimed, []
        if unclaimed:
            # Waited for: the next receive looks after it is there again.
            await self._discard(unclaimed)


# Lock client of one queue: settles and renews many locks by one request, and one by one when the
# service refuses some of them.


@attrs.frozen
class Disposition:
    """What is to become of locked messages, in the service's words."""

    outcome: str
    reason: str = ""
    detail: str = ""
    handed_back: int = 0
    """Of what is abandoned untried: how often it was by now."""


Results = dict[str, PumpError | None]
"""What became of each lock: None when it was as asked."""


class LockClient:
    """Asks about the locks of one queue, or of one session of it."""

    def __init__(
        self,
        connections: ServiceBusConnections,
        queue: str,
        *,
        session: str = "",
        handle: Handle[Receiver] | None = None,
    ) -> None:
        self._connections = connections
        self._queue = queue
        self._session = session
        self._own_handle = handle

    async def settle(self, disposition: Disposition, tokens: Sequence[str]) -> Results:
        """Settle, and say what became of each. Never raises what the service says."""
        from . import sdk

        async def ask(receiver: Receiver, chunk: Sequence[str]) -> None:
            count = disposition.handed_back
            await sdk.settle(
                receiver,
                disposition.outcome,
                chunk,
                reason=disposition.reason,
                detail=disposition.detail,
                changes=handed_back(count, queue=self._queue) if count else None,
            )

        return await self._all(tokens, "settling", ask)

    async def renew(self, tokens: Sequence[str]) -> tuple[Results, dict[str, float]]:
        """Renew, and say for how long each lock lasts now."""
        from . import sdk

        lasts: dict[str, float] = {}

        async def ask(receiver: Receiver, chunk: Sequence[str]) -> None:
            now_s = self._connections.clock.time_s()
            granted = await sdk.renew(receiver, chunk, now_s)
            lasts.update(zip(chunk, granted, strict=True))

        return await self._all(tokens, "renewing", ask), lasts

    async def _all(
        self,
        tokens: Sequence[str],
        operation: str,
        ask: Callable[[Receiver, Sequence[str]], Awaitable[None]],
    ) -> Results:
        results: Results = {}
        for start in range(0, len(tokens), SETTLE_BATCH):
            chunk = tokens[start : start + SETTLE_BATCH]
            error = await self._try(chunk, operation, ask)
            if error is None or len(chunk) == 1 or not isinstance(error, LeaseLost):
                results.update(dict.fromkeys(chunk, error))
                continue
            for token in chunk:
                results[token] = await self._try([token], operation, ask)
        return results

    async def _try(
        self,
        chunk: Sequence[str],
        operation: str,
        ask: Callable[[Receiver, Sequence[str]], Awaitable[None]],
    ) -> PumpError | None:
        where = ServiceBusTarget(self._connections.address, operation, self._queue, self._session)
        try:
            handle = self._own_handle or self._connections.lock_receiver(self._queue)
            await handle.call(where, lambda receiver: ask(receiver, chunk))
        except GatewayError as error:
            return error
        return None

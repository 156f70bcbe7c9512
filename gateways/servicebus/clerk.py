"""The clerk of one queue: settles and renews many locks by one request, and one by one when the
service refuses some of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import attrs

from pump.errors import GatewayError, LeaseLost, PumpError

from .connection import Connections
from .errors import Where
from .limits import SETTLE_BATCH
from .wire import handed_back

if TYPE_CHECKING:
    from .handle import Handle
    from .sdk import Receiver


@attrs.frozen
class Verdict:
    """What is to become of locked messages, in the service's words."""

    outcome: str
    reason: str = ""
    detail: str = ""
    handed_back: int = 0
    """Of what is abandoned untried: how often it was by now."""


Fates = dict[str, PumpError | None]
"""What became of each lock: None when it was as asked."""


class Clerk:
    """Asks about the locks of one queue, or of one session of it."""

    def __init__(
        self,
        connections: Connections,
        queue: str,
        *,
        session: str = "",
        handle: Handle[Receiver] | None = None,
    ) -> None:
        self._connections = connections
        self._queue = queue
        self._session = session
        self._own_handle = handle

    async def settle(self, verdict: Verdict, tokens: Sequence[str]) -> Fates:
        """Settle, and say what became of each. Never raises what the service says."""
        from . import sdk

        async def ask(receiver: Receiver, chunk: Sequence[str]) -> None:
            count = verdict.handed_back
            await sdk.settle(
                receiver,
                verdict.outcome,
                chunk,
                reason=verdict.reason,
                detail=verdict.detail,
                changes=handed_back(count, queue=self._queue) if count else None,
            )

        return await self._all(tokens, "settling", ask)

    async def renew(self, tokens: Sequence[str]) -> tuple[Fates, dict[str, float]]:
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
    ) -> Fates:
        fates: Fates = {}
        for start in range(0, len(tokens), SETTLE_BATCH):
            chunk = tokens[start : start + SETTLE_BATCH]
            error = await self._try(chunk, operation, ask)
            if error is None or len(chunk) == 1 or not isinstance(error, LeaseLost):
                fates.update(dict.fromkeys(chunk, error))
                continue
            for token in chunk:
                fates[token] = await self._try([token], operation, ask)
        return fates

    async def _try(
        self,
        chunk: Sequence[str],
        operation: str,
        ask: Callable[[Receiver, Sequence[str]], Awaitable[None]],
    ) -> PumpError | None:
        where = Where(self._connections.address, operation, self._queue, self._session)
        try:
            handle = self._own_handle or self._connections.clerk(self._queue)
            await handle.call(where, lambda receiver: ask(receiver, chunk))
        except GatewayError as error:
            return error
        return None

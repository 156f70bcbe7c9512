"""Invoking: one call of a function, within its time."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any, Final

from pump.clock import Clock
from pump.errors import HandlerTimeout

from ..._aws.threads import DaemonThreads
from .calling import Call, Failed, Returned
from .context import LambdaContext
from .failures import describe
from .function_code import FunctionCode

_GRACE_S: Final = 1.0
"""How long a coroutine that was cancelled may take to end before it counts as abandoned."""


class Invoker:
    """Calls one function, in one of so many threads; nothing waits for them at exit."""

    def __init__(
        self, code: FunctionCode, clock: Clock, *, timeout_s: float, max_threads: int
    ) -> None:
        self._code = code
        self._clock = clock
        self._timeout_s = timeout_s
        self._name = f"function-{code.target}"
        self._threads = DaemonThreads(max_threads, self._name)

    async def load(self) -> None:
        """Import the function; ConfigurationError when there is none.

        Cancelled, it leaves the import behind: a module may wait for ever while it is imported.
        """
        # A thread of its own, which ends with it: who loads may never come to invoke.
        thread = DaemonThreads(1, f"{self._name}-import")
        future = thread.submit(self._code.load)
        thread.shutdown()
        await asyncio.wrap_future(future)

    async def invoke(self, event: dict[str, Any], context: LambdaContext) -> Returned | Failed:
        """Call the function once. Raises nothing but cancellation, which abandons the call."""
        call = Call(self._code, event, context)
        future = self._threads.submit(call.run)
        try:
            outcome = await self._wait(future, self._timeout_s)
            if outcome is not None:
                return outcome
            if call.cancel():
                await self._wait(future, _GRACE_S)
        finally:
            call.cancel()
        error = describe(HandlerTimeout(self._code.target, self._timeout_s))
        return Failed(error, still_running=None if future.done() else future)

    def shutdown(self) -> None:
        """Let idle threads end; one that is stuck in the function stays until it returns."""
        self._threads.shutdown()

    async def _wait(self, future: Future[Any], timeout_s: float) -> Returned | Failed | None:
        try:
            async with self._clock.timeout(timeout_s):
                outcome: Returned | Failed = await asyncio.wrap_future(future)
                return outcome
        except TimeoutError:
            return None

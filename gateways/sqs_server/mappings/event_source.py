"""An event-source mapping: polls a queue and calls a function with what it finds (R46).

A batch is received only once an invocation may start, so that no message waits hidden for its
turn. Its messages stay in flight while the function runs. Then:

- it returned: deleted, but for those that it reports as failed;
- it raised, ran out of time or answered nonsense: none is touched. They are visible again after
  the queue's visibility timeout and dead-lettered by its redrive policy;
- drained before it was called: visible at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import attrs

from pump.clock import Clock
from pump.observability import vocabulary
from pump.observability.log import get_logger

from ..config.model import MappingConfig
from ..model import QueueAddress
from .calling import Failed, Returned
from .context import make_context
from .event import Item, make_event, split_by_size
from .failures import describe
from .function_code import FunctionCode
from .gathering import Gatherer
from .invoking import Invoker
from .ports import QueueEngine
from .response import MalformedResponse, failed_ids

_log = get_logger("gateways.sqs_server")


@attrs.define
class Counters:
    """What a mapping has done since it was made: calls, and messages by their fate."""

    invocations: int = 0
    succeeded: int = 0
    failed: int = 0
    filtered: int = 0


class EventSource:
    """One mapping. `run` it once, in a task; `drain` ends that.

    `root` is the project's folder: functions are looked for there first, and only files in it
    are reloaded.
    """

    def __init__(
        self,
        engine: QueueEngine,
        queue: Any,
        config: MappingConfig,
        clock: Clock,
        *,
        root: Path = Path(),
    ) -> None:
        self.config = config
        self._clock = clock
        self._address: QueueAddress = queue.settings.address
        self._gatherer = Gatherer(engine, self._address, config, clock)
        code = FunctionCode(
            config.function,
            origin=config.origin,
            root=root,
            reloads=config.reloads,
        )
        self._invoker = Invoker(
            code, clock, timeout_s=config.timeout_s, max_threads=config.max_concurrency
        )
        self._slots = asyncio.Semaphore(config.max_concurrency)
        self._counters = Counters()
        self._poller: asyncio.Task[None] | None = None
        self._is_draining = False
        self._is_over = asyncio.Event()

    @property
    def counters(self) -> Counters:
        """What it has done so far."""
        return attrs.evolve(self._counters, filtered=self._gatherer.filtered)

    async def load(self) -> None:
        """Import the function now. ConfigurationError, with file and key, when that fails."""
        await self._invoker.load()

    async def run(self) -> None:
        """Poll and invoke until drained or cancelled.

        Raises ConfigurationError when the function cannot be imported. Cancelled, it abandons
        what runs, and those messages come again after the visibility timeout.
        """
        try:
            if self.config.is_enabled:
                await self.load()
            if self.config.is_enabled and not self._is_draining:
                await self._run()
        finally:
            self._invoker.shutdown()
            self._is_over.set()

    async def drain(self) -> None:
        """Start nothing more; return when what runs has come to its end, or run out of time."""
        self._is_draining = True
        if self._poller is not None:
            self._poller.cancel()
            await self._is_over.wait()

    async def _run(self) -> None:
        name = f"mapping-{self._address.name}"
        _log.info(
            vocabulary.MAPPING_STARTED, queue=self._address.name, function=self.config.function
        )
        async with asyncio.TaskGroup() as tasks:
            self._poller = tasks.create_task(self._poll(tasks), name=name)
        _log.info(
            vocabulary.MAPPING_DRAINED, queue=self._address.name, function=self.config.function
        )

    async def _poll(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            await self._slots.acquire()
            batch: list[Item] = []
            try:
                batch = await self._gatherer.gather()
            finally:
                if not batch:
                    self._slots.release()
            if batch:
                name = f"invocation-{self._address.name}-{batch[0].id}"
                tasks.create_task(self._process(batch), name=name)

    async def _process(self, batch: Sequence[Item]) -> None:
        """Invoke with a batch, in several parts where it is too heavy; free the slot after."""
        parts = list(split_by_size(batch))
        still_running: Future[Any] | None = None
        failed_groups: set[str | None] = set()
        try:
            while parts and still_running is None and not self._is_draining:
                # In a group, nothing is to pass one that failed; it waits hidden as that one does.
                part = [i for i in parts.pop(0) if i.message.group not in failed_groups]
                if part:
                    still_running, failed = await self._invoke(part)
                    failed_groups |= self._groups_of(failed)
            rest = [item for part in parts for item in part]
            await self._gatherer.give_back(
                [item for item in rest if item.message.group not in failed_groups]
            )
        finally:
            self._free_slot(still_running)

    def _groups_of(self, items: Sequence[Item]) -> set[str | None]:
        # A standard queue's messages may have groups too, but promise no order.
        return {item.message.group for item in items} if self._address.is_fifo else set()

    async def _invoke(self, items: Sequence[Item]) -> tuple[Future[Any] | None, Sequence[Item]]:
        config = self.config
        context = make_context(config.function_name, self._address, self._clock, config.timeout_s)
        self._counters.invocations += 1
        started_at_s = self._clock.now_s()
        outcome = self._read(await self._invoker.invoke(make_event(items), context), items)
        if isinstance(outcome, Failed):
            done: Sequence[Item] = ()
            failed = items
            self._report(outcome, items, context.aws_request_id)
        else:
            done = [item for item in items if item.id not in outcome.answer]
            failed = [item for item in items if item.id in outcome.answer]
        await self._gatherer.delete(done)
        self._counters.succeeded += len(done)
        self._counters.failed += len(failed)
        _log.debug(
            vocabulary.INVOCATION_COMPLETED,
            function=config.function,
            request_id=context.aws_request_id,
            messages=len(items),
            failed=len(failed),
            run_s=round(self._clock.now_s() - started_at_s, 6),
        )
        return (outcome.still_running if isinstance(outcome, Failed) else None), failed

    def _read(self, outcome: Returned | Failed, items: Sequence[Item]) -> Returned | Failed:
        """With `answer` as the set of ids that failed."""
        if isinstance(outcome, Failed):
            return outcome
        if not self.config.reports_item_failures:
            return Returned(frozenset())
        try:
            return Returned(failed_ids(outcome.answer, {item.id for item in items}))
        except MalformedResponse as error:
            return Failed(describe(error))

    def _report(self, outcome: Failed, items: Sequence[Item], request_id: str) -> None:
        # As text: an exception would take the frames' variables along, message bodies among them.
        trace = {"traceback": outcome.traceback} if outcome.traceback else {}
        _log.warning(
            vocabulary.INVOCATION_FAILED,
            function=self.config.function,
            request_id=request_id,
            messages=len(items),
            error=outcome.error,
            **trace,
        )
        if outcome.still_running is not None:
            _log.warning(
                vocabulary.FUNCTION_ABANDONED,
                function=self.config.function,
                request_id=request_id,
                detail="its thread cannot be stopped, and counts as an invocation until it ends",
            )

    def _free_slot(self, still_running: Future[Any] | None) -> None:
        if still_running is None:
            self._slots.release()
            return
        loop = asyncio.get_running_loop()

        def release(_: Future[Any]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._slots.release)

        still_running.add_done_callback(release)

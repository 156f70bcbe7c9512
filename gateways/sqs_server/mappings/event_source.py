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
import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Protocol

import attrs

from pump.backoff import Backoff
from pump.clock import Clock
from pump.errors import StorageFailed
from pump.observability import vocabulary
from pump.observability.log import get_logger

from ..config.loading import MappingConfig
from ..config.patterns import passes
from ..engine import ReceiptProblem
from ..errors import SqsError
from ..model import Attribute, QueueId, Received
from ..operations.message_attributes import attributes_digest, body_digest
from .invoking import (
    Failed,
    FunctionCode,
    Invoker,
    MalformedResponse,
    Returned,
    describe,
    failed_ids,
    make_context,
)

_log = get_logger("gateways.sqs_server")


@attrs.define
class MappingCounters:
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
        engine: MappedQueues,
        queue: Any,
        config: MappingConfig,
        clock: Clock,
        *,
        root: Path = Path(),
    ) -> None:
        self.config = config
        self._clock = clock
        self._address: QueueId = queue.settings.address
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
        self._counters = MappingCounters()
        self._poller: asyncio.Task[None] | None = None
        self._is_draining = False
        self._is_over = asyncio.Event()

    @property
    def counters(self) -> MappingCounters:
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


# Gathering: one batch for a function, filtered, by size, by time and by weight.

_MAX_RECEIVE: Final = 10
"""SQS's: a larger batch takes several receives."""
_POLL_S: Final = 20.0
"""SQS's longest; a poll ends earlier as soon as there is a message."""
_RETRY: Final = Backoff(
    initial=timedelta(milliseconds=100), maximum=timedelta(seconds=1), jitter=0.5
)
"""For a queue that is gone or a disk that is full: an operator is about to fix it."""
_REFUSALS: Final = (StorageFailed, SqsError)


class Gatherer:
    """Receives for one mapping. One batch at a time; not to be shared by tasks."""

    def __init__(
        self, engine: MappedQueues, address: QueueId, config: MappingConfig, clock: Clock
    ) -> None:
        self._engine = engine
        self._address = address
        self._config = config
        self._clock = clock
        self._failures = 0
        self._is_missing = False
        self.filtered = 0

    async def gather(self) -> list[Item]:
        """The next batch; maybe empty, then ask again.

        Without a window, what one receive gives; with one, until the batch is full, the window
        is over since its first message, or the payload is at its limit. Cancelled, it makes
        visible what it had.
        """
        # By id: what outlives its visibility in a long window is received again, and only its
        # newest receipt is good.
        batch: dict[str, Item] = {}
        try:
            await self._fill(batch)
        except asyncio.CancelledError:
            await self.give_back(list(batch.values()))
            raise
        return list(batch.values())

    async def _fill(self, batch: dict[str, Item]) -> None:
        config, payload = self._config, 0
        closes_at_s: float | None = None
        while len(batch) < config.batch_size and payload < MAX_PAYLOAD_BYTES:
            wait_s = _POLL_S if closes_at_s is None else closes_at_s - self._clock.now_s()
            if wait_s <= 0:
                return
            items = await self._receive(min(_MAX_RECEIVE, config.batch_size - len(batch)), wait_s)
            batch.update({item.id: item for item in items})
            payload += sum(item.size for item in items)
            if not config.batching_window_s or not batch:
                return
            if closes_at_s is None:
                closes_at_s = self._clock.now_s() + config.batching_window_s

    async def _receive(self, max_count: int, wait_s: float) -> list[Item]:
        queue = self._find()
        if queue is None:
            await self._wait_after_failure()
            return []
        ends_at_s = self._clock.now_s() + wait_s
        try:
            messages = await self._engine.receive(
                queue,
                max_count=max_count,
                wait_s=wait_s,
                visibility_s=queue.settings.visibility_timeout_s,
                is_inside=True,
            )
        except _REFUSALS as error:
            if not self._failures:
                _log.warning(vocabulary.RECEIVE_FAILED, queue=self._address.name, error=str(error))
            await self._wait_after_failure()
            return []
        if not messages and self._clock.now_s() < ends_at_s:
            # Returned early: the queue is being deleted, or the server closes.
            await self._wait_after_failure()
            return []
        self._failures = 0
        has_window = self._config.batching_window_s > 0
        items = [make_item(each, self._address, has_window=has_window) for each in messages]
        return await self._keep_matching(items)

    def _find(self) -> Any:
        queue = self._engine.find(self._address)
        if (queue is None) != self._is_missing:
            self._is_missing = queue is None
            event = vocabulary.QUEUE_MISSING if self._is_missing else vocabulary.QUEUE_FOUND
            _log.warning(event, queue=self._address.name)
        return queue

    async def _wait_after_failure(self) -> None:
        self._failures += 1
        await self._clock.sleep(_RETRY.delay_s(self._failures, self._clock.chance()))

    async def _keep_matching(self, items: list[Item]) -> list[Item]:
        """Delete what no filter matches, as Lambda does: the function will never want it."""
        filters = self._config.filters
        wanted = [item for item in items if passes(filters, item.record)]
        if len(wanted) < len(items):
            kept = set(map(id, wanted))
            self.filtered += len(items) - len(wanted)
            try:
                await self.delete([item for item in items if id(item) not in kept])
            except asyncio.CancelledError:
                await self.give_back(wanted)
                raise
        return wanted

    async def delete(self, items: Sequence[Item]) -> None:
        """Delete them; what the disk refuses to delete comes again after its time."""
        queue = self._engine.find(self._address)
        if queue is None or not items:
            return
        try:
            refused = await self._engine.delete(queue, [item.message.receipt for item in items])
        except _REFUSALS as error:
            _log.warning(
                vocabulary.DELETE_FAILED,
                queue=self._address.name,
                messages=len(items),
                error=str(error),
            )
            return
        # A function may delete its messages by itself; then they are gone.
        count = sum(problem not in (None, ReceiptProblem.GONE) for problem in refused)
        if count:
            # The function took longer than the visibility timeout: they may come again.
            _log.warning(vocabulary.DELETE_REFUSED, queue=self._address.name, messages=count)

    async def give_back(self, items: Sequence[Item]) -> None:
        """Make visible at once what no function has seen."""
        queue = self._engine.find(self._address)
        if queue is None or not items:
            return
        try:
            await self._engine.change_visibility(queue, [(i.message.receipt, 0) for i in items])
        except _REFUSALS as error:
            _log.warning(
                vocabulary.RETURN_FAILED,
                queue=self._address.name,
                messages=len(items),
                error=str(error),
            )


# What a mapping needs of the server: four operations of its engine.


class MappedQueues(Protocol):
    """The engine, as far as a poller uses it. A queue is whatever `find` returns (hence Any).

    Any of these raises StorageFailed when the disk refuses, and SqsError when SQS would.
    """

    def find(self, address: QueueId) -> Any:
        """The queue, with its `settings`; None when there is none now."""

    async def receive(
        self, queue: Any, *, max_count: int, wait_s: float, visibility_s: int, is_inside: bool
    ) -> list[Received]:
        """Up to `max_count` messages, as soon as there is one. Cancelled, it hides nothing.

        Of a receiver that `is_inside`, a crash of the server leaves nothing in flight.
        """

    async def delete(self, queue: Any, receipts: Sequence[str]) -> Sequence[object | None]:
        """For each receipt, None or why it was refused."""

    async def change_visibility(
        self, queue: Any, changes: Sequence[tuple[str, int]]
    ) -> Sequence[object | None]:
        """Hide each message for so many seconds more; 0 shows it at once."""


# The event: what Lambda gives a function for messages of a queue, field by field. Pure.

MAX_PAYLOAD_BYTES: Final = 6_000_000
"""The most that Lambda hands to a function at once."""

Record = dict[str, Any]


@attrs.frozen(eq=False)
class Item:
    """A message with the record a function sees of it, and what that weighs as JSON."""

    message: Received
    record: Record = attrs.field(repr=False)
    size: int

    @property
    def id(self) -> str:
        """The message's."""
        return self.message.id


def make_item(message: Received, address: QueueId, *, has_window: bool) -> Item:
    """A received message, ready to be put into an event."""
    record = make_record(message, address, has_window=has_window)
    return Item(message, record, len(json.dumps(record, ensure_ascii=False).encode()))


def make_record(message: Received, address: QueueId, *, has_window: bool) -> Record:
    """One of an event's `Records`.

    Without message attributes there is no `md5OfMessageAttributes`; with a batching window,
    AWS gives it as null then.
    """
    record: Record = {
        "messageId": message.id,
        "receiptHandle": message.receipt,
        "body": message.body,
        "attributes": _system_attributes(message),
        "messageAttributes": {
            name: _message_attribute(each) for name, each in message.attributes.items()
        },
        "md5OfBody": body_digest(message.body.encode()),
    }
    if message.attributes:
        record["md5OfMessageAttributes"] = attributes_digest(message.attributes)
    elif has_window:
        record["md5OfMessageAttributes"] = None
    return record | {
        "eventSource": "aws:sqs",
        "eventSourceARN": address.arn,
        "awsRegion": address.region,
    }


def make_event(items: Iterable[Item]) -> dict[str, Any]:
    """What the function is called with: its own, to change as it likes."""
    event: dict[str, Any] = json.loads(json.dumps({"Records": [item.record for item in items]}))
    return event


def split_by_size(items: Sequence[Item], limit: int = MAX_PAYLOAD_BYTES) -> Iterator[list[Item]]:
    """The items in order, in as few parts as fit into an invocation each; one item always does."""
    part: list[Item] = []
    size = 0
    for item in items:
        if part and size + item.size > limit:
            yield part
            part, size = [], 0
        part.append(item)
        size += item.size
    if part:
        yield part


def _system_attributes(message: Received) -> dict[str, str]:
    found = {
        "ApproximateReceiveCount": str(message.receive_count),
        "SentTimestamp": _milliseconds(message.sent_at_s),
        "SequenceNumber": message.sequence_number,
        "MessageGroupId": message.group,
        "SenderId": message.sender,
        "MessageDeduplicationId": message.deduplication_id,
        "ApproximateFirstReceiveTimestamp": _milliseconds(message.first_received_at_s),
        "AWSTraceHeader": message.trace_header,
        "DeadLetterQueueSourceArn": message.dead_letter_source,
    }
    return {name: value for name, value in found.items() if value is not None}


def _message_attribute(attribute: Attribute) -> dict[str, Any]:
    value = attribute.value
    given = (
        {"stringValue": value}
        if isinstance(value, str)
        else {"binaryValue": b64encode(value).decode()}
    )
    return {
        **given,
        "stringListValues": [],
        "binaryListValues": [],
        "dataType": attribute.data_type,
    }


def _milliseconds(time_s: float) -> str:
    return str(round(time_s * 1_000))

"""Consumer: handles events on the event loop; the function that Lambda calls waits for it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack

from ..errors import ConfigurationError, UnsupportedOperation
from ..ports import PushedRecord, PushGateway
from ..runtime import Runtime
from ..subscription import Subscription
from .answer import Answer
from .options import LambdaOptions
from .queue import PushedQueue, refuse

_ANSWER_SHARE = 0.25
"""The part of the margin that is left for the answer itself, when settling takes long."""


class EventConsumer:
    """Handles the events of an open app. `read` one, `handle` it, then ask its answer."""

    def __init__(
        self, runtime: Runtime, subscriptions: Sequence[Subscription], options: LambdaOptions
    ) -> None:
        if not subscriptions:
            raise ConfigurationError(
                "App.subscriptions", (), "nothing to handle; use app.subscribe(Subscription(…))"
            )
        self._gateway = _push_gateway(runtime)
        self._runtime = runtime
        self._clock = runtime.clock
        self._subscriptions = tuple(subscriptions)
        self._options = options
        self._margin_s = options.margin.total_seconds()
        self._queues: dict[str, PushedQueue] = {}

    def read(self, event: object) -> Answer:
        """The event's records, all of them failed so far. Raises as `pushed_records` does."""
        return Answer(self._gateway.pushed_records(event))

    async def handle(self, answer: Answer, *, ends_at_s: float | None = None) -> None:
        """Have every record handled, and the provider told what the answer does not say.

        `ends_at_s` is when the function is stopped, on the app's clock. Some time before it, the
        margin, nothing more is started, and handlers that still run are cancelled: their
        messages come again.
        """
        work = [
            (self._queue(subscription), records)
            for subscription, records in self._by_subscription(answer.records)
        ]
        margin_s = self._margin_within(ends_at_s)
        limit_s = self._left_s(ends_at_s, margin_s)
        async with asyncio.TaskGroup() as group:
            handling = [
                group.create_task(
                    queue.handle(
                        records,
                        on_done=answer.complete,
                        lease_s=self._lease_s(queue, ends_at_s),
                        limit_s=limit_s,
                    )
                )
                for queue, records in work
            ]
        is_answered = self._options.partial_batches or not answer.failed_ids
        limit_s = self._left_s(ends_at_s, margin_s * _ANSWER_SHARE)
        async with asyncio.TaskGroup() as group:
            for (queue, _), handled in zip(work, handling, strict=True):
                group.create_task(
                    queue.settle(handled.result(), is_answered=is_answered, limit_s=limit_s)
                )
        if self._runtime.telemetry is not None:
            # Once the event is answered, the process is frozen, maybe for ever.
            await self._runtime.telemetry.flush()

    async def aclose(self) -> None:
        """Close what was needed for the queues that events came from."""
        async with AsyncExitStack() as closing:
            while self._queues:
                _, queue = self._queues.popitem()
                closing.push_async_callback(queue.aclose)

    def _by_subscription(
        self, records: Sequence[PushedRecord]
    ) -> list[tuple[Subscription, list[PushedRecord]]]:
        by_source: dict[str, list[PushedRecord]] = defaultdict(list)
        for record in records:
            if record.defect:
                refuse([record], error=f"{record.id}: {record.defect}", remedy=_MALFORMED)
            else:
                by_source[record.source].append(record)
        found = []
        for source, members in by_source.items():
            subscription = self._subscription_of(members[0])
            if subscription is None:
                known = ", ".join(each.queue for each in self._subscriptions)
                refuse(
                    members,
                    error=f"no subscription of the app consumes it; those there are: {known}",
                    remedy=f"app.subscribe(Subscription(queue={source!r}, …)), or remove the "
                    f"queue's event source mapping from this function",
                )
            else:
                found.append((subscription, members))
        return found

    def _subscription_of(self, record: PushedRecord) -> Subscription | None:
        matching = (
            each for each in self._subscriptions if self._gateway.is_pushed_to(record, each)
        )
        return next(matching, None)

    def _queue(self, subscription: Subscription) -> PushedQueue:
        queue = self._queues.get(subscription.name)
        if queue is None:
            queue = self._queues[subscription.name] = PushedQueue(
                self._runtime,
                self._gateway,
                subscription,
                is_spill_durable=self._options.is_spill_durable,
            )
        return queue

    def _margin_within(self, ends_at_s: float | None) -> float:
        """The margin, or half of the time where there is so little: some must be for the work."""
        left_s = self._left_s(ends_at_s, 0.0)
        return self._margin_s if left_s is None else min(self._margin_s, left_s / 2)

    def _left_s(self, ends_at_s: float | None, kept_s: float) -> float | None:
        if ends_at_s is None:
            return None
        return max(0.0, ends_at_s - kept_s - self._clock.now_s())

    def _lease_s(self, queue: PushedQueue, ends_at_s: float | None) -> float:
        left_s = self._left_s(ends_at_s, 0.0)
        return queue.subscription.lease.total_seconds() if left_s is None else left_s


_MALFORMED = "send events as SQS does; in a test event, give each record all of its members"


def _push_gateway(runtime: Runtime) -> PushGateway:
    gateway = runtime.gateway
    if not isinstance(gateway, PushGateway):
        raise UnsupportedOperation(
            gateway.capabilities.gateway,
            "lambda_handler()",
            "no function is invoked with its messages; use App('sqs://…'), or app.run()",
        )
    return gateway

"""The caretaker of queues: makes, checks, lists, looks into and empties them.

Making, checking and counting is HTTP, and wants the right to manage; looking and emptying is AMQP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pump.backoff import RECONNECT
from pump.errors import (
    ConnectionFailed,
    GatewayError,
    LeaseLost,
    QueueMismatch,
    Throttled,
    UnsupportedOperation,
)
from pump.message import Message
from pump.observability.log import get_logger
from pump.observability.vocabulary import QUEUE_DIFFERS
from pump.ports import QueueStats
from pump.subscription import MakeChannels, QueueSpec

from .connection import ServiceBusConnections
from .errors import RequestRefused, ServiceBusTarget, fault_of
from .names import MAX_TRIES, RECEIVE_BATCH, parent_of
from .queue_settings import ServiceBusQueueSettings
from .settling import COMPLETE
from .tap import LockClient
from .wire import decode

if TYPE_CHECKING:
    from .sdk import Administration

T = TypeVar("T")
_log = get_logger("gateways.servicebus")


class ServiceBusAdmin:
    """Looks after queues."""

    def __init__(
        self,
        connections: ServiceBusConnections,
        *,
        held_of: Callable[[str], int],
        drop_held_of: Callable[[str], Awaitable[int]],
    ) -> None:
        self._connections = connections
        self._held_of = held_of
        self._drop_held_of = drop_held_of

    async def ensure(self, spec: QueueSpec, make: MakeChannels) -> None:
        """A queue that exists is never changed: creating warns of the differences, validating
        raises them. Sessions that are not as asked for are always an error.
        """
        settings = ServiceBusQueueSettings.from_spec(spec)
        if make is MakeChannels.ASSUME:
            return
        if (parent := parent_of(spec.name)) is not None:
            await self._describe(parent, asked_for=spec.name)
        elif make is MakeChannels.CREATE:
            await self._create(settings)
        else:
            await self._validate(settings)

    async def queues(self) -> Sequence[QueueStats]:
        """Every queue of the namespace, by name; dead letters are not among them."""

        async def listed(client: Administration) -> list[Any]:
            return [each async for each in client.list_queues_runtime_properties()]

        found = await self._ask("listing queues", "", listed)
        return sorted((self._stats(each.name, each) for each in found), key=lambda each: each.name)

    async def stats(self, queue: str) -> QueueStats:
        """What is in flight is what this gateway holds: what others have locked is counted as
        visible. Counts may lag behind.
        """
        name = parent_of(queue) or queue

        async def described(client: Administration) -> Any:
            return await client.get_queue_runtime_properties(name)

        return self._stats(queue, await self._ask("describing", queue, described))

    async def peek(self, queue: str, *, max_count: int = 10) -> Sequence[Message]:
        """In the order they were stored, those in flight too; not what waits for its time."""
        seen: list[Message] = []
        first = 1
        while len(seen) < max_count:
            looked = await self._look(queue, max_count, first)
            if not looked:
                break
            seen += [decode(arrival) for arrival, is_scheduled in looked if not is_scheduled]
            first = looked[-1][0].sequence + 1
        return seen[:max_count]

    async def purge(self, queue: str) -> int:
        """What is in flight at other processes stays theirs.

        Each is received and completed: a link that deletes as it receives would also take what
        is sent while it closes.
        """
        from . import sdk

        count = await self._cancel_scheduled(queue)
        where = ServiceBusTarget(self._connections.address, "purging", queue)
        clock, look_s = self._connections.clock, self._connections.settings.look_s
        own = self._connections.own(lambda: self._connections.new_receiver(queue))
        clerk = LockClient(self._connections, queue)
        try:
            while taken := await own.call(
                where, lambda link: sdk.receive(link, RECEIVE_BATCH, look_s, clock)
            ):
                fates = await clerk.settle(COMPLETE, [each.token for each in taken])
                count += sum(fate is None for fate in fates.values())
            await own.call(where, sdk.revoke)
        finally:
            await own.aclose()
        return count + await self._drop_held_of(queue)

    async def _cancel_scheduled(self, queue: str) -> int:
        count, first = 0, 1
        while looked := await self._look(queue, RECEIVE_BATCH, first):
            numbers = [arrival.sequence for arrival, is_scheduled in looked if is_scheduled]
            if numbers:
                count += await self._cancel(queue, numbers)
            first = looked[-1][0].sequence + 1
        return count

    async def _cancel(self, queue: str, numbers: Sequence[int]) -> int:
        """How many are cancelled. What has become due since it was seen is received as the rest
        is, and keeps none of the others from being cancelled.
        """
        from . import sdk

        where = ServiceBusTarget(self._connections.address, "purging", queue)
        sender = self._connections.sender(queue)
        try:
            await sender.call(where, lambda each: sdk.cancel(each, numbers))
        except LeaseLost:
            if len(numbers) == 1:
                return 0
            return sum([await self._cancel(queue, [number]) for number in numbers])
        return len(numbers)

    async def _look(self, queue: str, count: int, first: int) -> Any:
        from . import sdk

        where = ServiceBusTarget(self._connections.address, "peeking", queue)
        now_s = self._connections.clock.time_s()
        try:
            return await self._connections.clerk(queue).call(
                where, lambda each: sdk.peek(each, count, first, now_s)
            )
        except RequestRefused as error:
            if "session" not in error.detail.lower():
                raise
            raise UnsupportedOperation(
                "sb", f"looking into {queue!r}", f"a queue with sessions shows none ({error})"
            ) from error

    def _stats(self, queue: str, found: Any) -> QueueStats:
        held = self._held_of(queue)
        if parent_of(queue) is not None:
            active, delayed = int(found.dead_letter_message_count or 0), 0
        else:
            active = int(found.active_message_count or 0)
            delayed = int(found.scheduled_message_count or 0)
        return QueueStats(
            name=queue, visible=max(active - held, 0), in_flight=held, delayed=delayed
        )

    async def _create(self, settings: ServiceBusQueueSettings) -> None:
        if settings.dead_letter_queue is not None:
            # First: the service refuses a queue whose dead letters have nowhere to go.
            await self._create(
                ServiceBusQueueSettings.from_spec(QueueSpec(name=settings.dead_letter_queue))
            )

        async def create(client: Administration) -> bool:
            try:
                await client.create_queue(settings.name, **settings.description)
            except Exception as error:  # broad: sorted where the call ends, but for this one
                if getattr(error, "status_code", None) != 409:
                    raise
                return False
            return True

        if await self._ask("creating", settings.name, create):
            return
        found = await self._describe(settings.name)
        if not settings.is_bare and bool(found["requires_session"]) != settings.has_sessions:
            raise QueueMismatch(settings.name, "; ".join(settings.differences(found)))
        if differences := settings.differences(found):
            _log.warning(QUEUE_DIFFERS, queue=settings.name, differences=differences)

    async def _validate(self, settings: ServiceBusQueueSettings) -> None:
        found = await self._describe(settings.name)
        if differences := settings.differences(found):
            raise QueueMismatch(settings.name, "; ".join(differences))
        if settings.dead_letter_queue is not None:
            await self._describe(settings.dead_letter_queue)

    async def _describe(self, queue: str, *, asked_for: str | None = None) -> dict[str, Any]:
        async def described(client: Administration) -> Any:
            return await client.get_queue(queue)

        return dict((await self._ask("describing", asked_for or queue, described)).items())

    async def _ask(
        self, operation: str, queue: str, work: Callable[[Administration], Awaitable[T]]
    ) -> T:
        """A request of its own each time, made again when the service was too busy for it."""
        where = ServiceBusTarget(self._connections.address, operation, queue)
        clock = self._connections.clock
        for attempt in range(1, MAX_TRIES):
            try:
                return await self._asked(where, work)
            except Throttled:
                await clock.sleep(RECONNECT.delay_s(attempt, clock.chance()))
        return await self._asked(where, work)

    async def _asked(
        self, where: ServiceBusTarget, work: Callable[[Administration], Awaitable[T]]
    ) -> T:
        settings = self._connections.settings
        try:
            async with self._connections.clock.timeout(settings.request_timeout_s):
                return await work(self._connections.administration)
        except (GatewayError, asyncio.CancelledError):
            raise
        except TimeoutError as error:
            detail = f"no answer within {settings.request_timeout_s:g} s"
            raise ConnectionFailed(where.address, detail) from error
        except Exception as error:  # broad: whatever the SDK raises is sorted
            raise fault_of(error, where) from error

"""The Service Bus gateway, through azure-servicebus: its ports, and administration of queues."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

import attrs

from pump.backoff import RECONNECT
from pump.capabilities import Capabilities
from pump.clock import SYSTEM_CLOCK, Clock
from pump.errors import (
    ConnectionFailed,
    GatewayError,
    LeaseLost,
    MessageTooLarge,
    PumpError,
    QueueMismatch,
    SendFailed,
    Throttled,
    UnsupportedOperation,
)
from pump.message import Delivery, Message
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.observability.vocabulary import QUEUE_DIFFERS
from pump.outcome import ACK, Refusal, Settlement
from pump.ports import AdminPort, ConsumerPort, Gateway, ProducerPort, QueueStats, SessionPort
from pump.subscription import MakeChannels, QueueSpec, Subscription

from .connection import ServiceBusConnections
from .errors import RequestRefused, ServiceBusTarget, fault_of
from .names import (
    MAX_PROPERTIES_BYTES,
    MAX_TRIES,
    NO_GROUP,
    RECEIVE_BATCH,
    capabilities_with,
    max_body_bytes,
    parent_of,
    sendable_name,
)
from .queue_settings import ServiceBusQueueSettings, check_subscription
from .receive_link import LockClient, Pulled, ReceiveLink
from .session import ServiceBusSession, ServiceBusSessions
from .settings import ServiceBusSettings
from .settling import COMPLETE, LockTerms, ServiceBusLease, ServiceBusSettling, lease_of
from .wire import ServiceBusParcel, decode, encode, in_session

if TYPE_CHECKING:
    from .sdk import Administration


HANDING_BACK_S = 10.0
"""How long closing waits for what is in flight to be handed back."""
_log = get_logger("gateways.servicebus")


class ServiceBusGateway:
    """One namespace. Every connection is made when it is needed."""

    def __init__(self, settings: ServiceBusSettings, clock: Clock = SYSTEM_CLOCK) -> None:
        self._settings = settings
        self._clock = clock
        self._capabilities = capabilities_with(settings)
        self._connections = ServiceBusConnections(settings, clock)
        self._settlings: dict[str, ServiceBusSettling] = {}
        self._links: dict[str, ReceiveLink] = {}
        self._sessions: WeakSet[ServiceBusSession] = WeakSet()

    def __repr__(self) -> str:
        return f"ServiceBusGateway({self._settings!r})"

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def open(self) -> None:
        """Checks the SDK, and that the namespace can be reached; not who we are to it."""
        await self._connections.open()

    async def aclose(self) -> None:
        """What is in flight goes back to its queue at once. From a service that does not answer it
        goes back when its locks end: closing does not wait for that.
        """
        try:
            async with self._clock.timeout(HANDING_BACK_S):
                await asyncio.gather(*(each.aclose() for each in self._links.values()))
                await asyncio.gather(
                    *(each.aclose() for each in list(self._sessions)),
                    *(
                        each.hand_back(list(each.leases), is_tried=True)
                        for each in self._settlings.values()
                    ),
                )
        except TimeoutError:
            detail = f"not everything was handed back within {HANDING_BACK_S:g} s"
            _log.warning(vocabulary.SETTLE_FAILED, error=detail)
        finally:
            for each in self._settlings.values():
                each.aclose()
            await self._connections.aclose()

    def consumer(self, subscription: Subscription) -> ConsumerPort:
        """`UnsupportedOperation` for queues that Service Bus cannot offer, such as strict order."""
        check_subscription(subscription)
        queue = subscription.queue
        terms = LockTerms(
            lease_s=subscription.lease.total_seconds(),
            max_receive_count=subscription.max_receive_count,
        )
        settling = self._settling(queue)
        settling.terms = terms
        return ServiceBusConsumer(queue, terms, self._link(queue), settling, clock=self._clock)

    async def accept_session(
        self, subscription: Subscription, session: str | None, *, wait_s: float
    ) -> SessionPort | None:
        """Of queues made with `options={"sessions": True}`, whose messages are received so only."""
        accepted = await ServiceBusSessions(self._connections, subscription).accept(
            session, wait_s=wait_s
        )
        if accepted is not None:
            self._sessions.add(accepted)
        return accepted

    def producer(self, queue: str) -> ProducerPort:
        return ServiceBusProducer(self._connections, sendable_name(queue))

    def admin(self) -> AdminPort:
        return ServiceBusAdmin(
            self._connections,
            held_of=lambda queue: len(self._settling(queue).leases),
            drop_held_of=self._drop_held_of,
        )

    def _link(self, queue: str) -> ReceiveLink:
        if queue not in self._links:
            self._links[queue] = ReceiveLink(
                self._connections, queue, self._settling(queue).discard
            )
        return self._links[queue]

    def _settling(self, queue: str) -> ServiceBusSettling:
        # What one consumer of a queue received, another one may settle.
        if queue not in self._settlings:
            self._settlings[queue] = ServiceBusSettling(queue, self._connections)
        return self._settlings[queue]

    async def _drop_held_of(self, queue: str) -> int:
        settling = self._settling(queue)
        held = [Settlement(lease.delivery, ACK) for lease in settling.leases]
        return len(held) - len(await settling.settle(held))


def from_url(url: str, clock: Clock | None = None) -> Gateway:
    """`sb://namespace.servicebus.windows.net`; see `ServiceBusSettings.from_url`."""
    return ServiceBusGateway(
        ServiceBusSettings.from_url(url), SYSTEM_CLOCK if clock is None else clock
    )


# The consumer port of one queue.


class ServiceBusConsumer:
    """Receives from one queue and settles what it received."""

    def __init__(
        self,
        queue: str,
        terms: LockTerms,
        link: ReceiveLink,
        settling: ServiceBusSettling,
        *,
        clock: Clock,
    ) -> None:
        self._queue = queue
        self._terms = terms
        self._link = link
        self._settling = settling
        self._clock = clock

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        """What was delivered too often is moved away on the way, and not returned.

        Waits up to half a second longer where a link has to be opened first.
        """
        ends_at_s = self._clock.now_s() + wait_s
        while True:
            pulled = await self._pulled(max_count, ends_at_s)
            leases = [self._lease(each) for each in pulled]
            for lease in leases:
                self._settling.leases.hold(lease.delivery.receipt, lease)
            limit = self._terms.max_receive_count
            spent = [each for each in leases if limit is not None and each.delivery.attempt > limit]
            if spent:
                await self._moved(spent, leases)
            ready = [lease.delivery for lease in leases if lease not in spent]
            if ready or not pulled:
                return ready

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        """Returns when the service has confirmed it; see `settling`."""
        return await self._settling.settle(settlements)

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> Sequence[Refusal]:
        """There is no end to extending; locks are renewed by the queue's `LockDuration`."""
        return await self._settling.extend(deliveries, lease_s)

    async def aclose(self) -> None:
        """Nothing to release: connections are the gateway's."""

    async def _pulled(self, max_count: int, ends_at_s: float) -> Sequence[Pulled]:
        try:
            return await self._link.receive(max_count, ends_at_s)
        except RequestRefused as error:
            if "session" not in error.detail.lower():
                raise
            raise UnsupportedOperation(
                "sb",
                f"receiving from {self._queue!r}",
                "the queue has sessions, which are accepted: Consumer.accept_session()",
            ) from error

    async def _moved(
        self, spent: Sequence[ServiceBusLease], leases: Sequence[ServiceBusLease]
    ) -> None:
        try:
            await self._settling.dead_letter(spent)
        except asyncio.CancelledError:
            self._settling.hand_back_later([each for each in leases if each not in spent])
            raise

    def _lease(self, pulled: Pulled) -> ServiceBusLease:
        return lease_of(
            pulled.arrival,
            queue=self._queue,
            terms=self._terms,
            locked_at_s=pulled.locked_at_s,
            now_s=self._clock.now_s(),
        )


# The producer port of one queue.


@attrs.define(eq=False)
class _Outgoing:
    message: Message
    parcel: ServiceBusParcel
    error: PumpError | None = None


class ServiceBusProducer:
    """Sends to one queue, in the order given, in batches of up to a hundred.

    A batch is of one session: so messages of different groups may overtake each other.
    """

    def __init__(self, connections: ServiceBusConnections, queue: str) -> None:
        self._connections = connections
        self._clock: Clock = connections.clock
        self._queue = queue
        self._where = ServiceBusTarget(connections.address, "sending", queue)
        self._needs_session = False

    async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
        """A delay counts from our clock to the service's. `ConnectionFailed` leaves open whether
        the service has them.
        """
        outgoing = [_Outgoing(message, encode(message)) for message in messages]
        for each in outgoing:
            each.error = self._too_large(each)
        due_at = None
        if delay_s > 0:
            due_at = datetime.fromtimestamp(self._clock.time_s() + delay_s, UTC)
        by_session: dict[str | None, list[_Outgoing]] = {}
        for each in outgoing:
            if each.error is None:
                by_session.setdefault(each.parcel.session_id, []).append(each)
        await self._send(list(by_session.values()), due_at)
        self._raise_failures(outgoing)
        return [message.id for message in messages]

    async def aclose(self) -> None:
        """Nothing to release: connections are the gateway's."""

    async def _send(self, batches: Sequence[list[_Outgoing]], due_at: datetime | None) -> None:
        """The first that fails keeps back all that follow: in a group nothing may overtake, and
        a service that is away is not asked again for each group.
        """
        error: PumpError | None = None
        for rest in batches:
            try:
                while rest and error is None:
                    count = await self._sent([each.parcel for each in rest], due_at)
                    rest = rest[count:]
            except PumpError as caught:
                error = caught
            for each in rest:
                each.error = error

    async def _sent(self, parcels: Sequence[ServiceBusParcel], due_at: datetime | None) -> int:
        from . import sdk

        if self._needs_session:
            parcels = _with_sessions(parcels)
        sender = self._connections.sender(self._queue)
        try:
            return await sender.call(self._where, lambda each: sdk.send(each, parcels, due_at))
        except RequestRefused as error:
            if self._needs_session or "sessionid" not in error.detail.lower():
                raise
        # Only a refusal tells that a queue takes no message without a session.
        self._needs_session = True
        return await self._sent(parcels, due_at)

    def _too_large(self, outgoing: _Outgoing) -> PumpError | None:
        size, settings = outgoing.parcel.size, self._connections.settings
        body_bytes, limit = len(outgoing.message.body), max_body_bytes(settings)
        if body_bytes > limit:
            return MessageTooLarge(self._queue, body_bytes, limit)
        if size > settings.max_message_bytes:
            return MessageTooLarge(self._queue, size, settings.max_message_bytes)
        if size - body_bytes > MAX_PROPERTIES_BYTES:
            return MessageTooLarge(self._queue, size - body_bytes, MAX_PROPERTIES_BYTES)
        return None

    def _raise_failures(self, outgoing: Sequence[_Outgoing]) -> None:
        """What happened to all is raised as it is; otherwise each failure has its message."""
        failed = [each for each in outgoing if each.error is not None]
        if not failed:
            return
        first = failed[0].error
        if first is not None and all(each.error is first for each in outgoing):
            raise first
        raise SendFailed(
            self._queue, tuple((each.message.id, each.error) for each in failed if each.error)
        )


def _with_sessions(parcels: Sequence[ServiceBusParcel]) -> Sequence[ServiceBusParcel]:
    return [each if each.session_id else in_session(each, NO_GROUP) for each in parcels]


# The caretaker of queues: makes, checks, lists, looks into and empties them.
#
# Making, checking and counting is HTTP, and wants the right to manage; looking and emptying is
# AMQP.

T = TypeVar("T")


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
        lock_client = LockClient(self._connections, queue)
        try:
            while taken := await own.call(
                where, lambda link: sdk.receive(link, RECEIVE_BATCH, look_s, clock)
            ):
                results = await lock_client.settle(COMPLETE, [each.token for each in taken])
                count += sum(result is None for result in results.values())
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
            return await self._connections.lock_receiver(queue).call(
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

"""Posting: requests on their way out, to the queue their type is routed to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import attrs
from msgspec.structs import replace

from .context import current_context
from .errors import ConfigurationError, CryptoError, MessageTooLarge, UnsupportedOperation
from .mapping import Mapper
from .message import Message
from .observability.telemetry import Counters
from .ports import MAGIC, PAST_MAGIC, Gateway, ProducerPort
from .services import Services
from .subscription import MakeChannels, QueueSpec, checked_queue

if TYPE_CHECKING:
    from .outbox.relay import Relay
    from .outbox.store import Outbox, Posted
    from .outbox.transactions import Writer

_NO_DELAY = timedelta(0)


@attrs.frozen(kw_only=True)
class PostOptions:
    """What may be said about a request that is sent to a queue."""

    queue: str | None = None
    """Where to, when not to the queue its type is routed to."""
    delay: timedelta = _NO_DELAY
    """Deliver it no earlier than this from now."""
    group: str | None = None
    """Ordering key: one group's messages are handled in order."""
    deduplication_id: str | None = None
    correlation_id: str | None = None
    """By default that of the message being handled, or its id."""
    reply_to: str | None = None
    headers: Mapping[str, str] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        delay: object = self.delay
        if not isinstance(delay, timedelta) or delay < _NO_DELAY:
            raise ConfigurationError(
                "PostOptions.delay", self.delay, "use a timedelta of zero or more"
            )


NO_OPTIONS = PostOptions()


class Poster:
    """Encodes requests and sends them through one gateway, one producer a queue.

    `made` are the queues that the app itself makes; they are made before the first send.
    """

    def __init__(
        self,
        gateway: Gateway,
        mapper: Mapper,
        *,
        routes: Mapping[type, str],
        made: Mapping[str, QueueSpec],
        services: Services,
        counters: Counters,
        outbox: Outbox | None = None,
    ) -> None:
        self._gateway = gateway
        self._counters = counters
        self._outbox = outbox
        self._made = made
        self._mapper = mapper
        self._routes = routes
        self._clock = services.clock
        self._telemetry = services.telemetry
        self._encryption = services.encryption
        self._producers: dict[str, ProducerPort] = {}

    async def post(self, request: object, options: PostOptions) -> str:
        """Send a request and return its message's id."""
        message = self._encode(request, options)
        queue = self._queue_of(request, options)
        await self._send(queue, [message], [request], options.delay)
        return message.id

    async def post_all(self, requests: Sequence[object], options: PostOptions) -> Sequence[str]:
        """Send requests and return their message ids, in order."""
        by_queue: dict[str, tuple[list[Message], list[object]]] = {}
        ids = []
        for request in requests:
            message = self._encode(request, options)
            ids.append(message.id)
            messages, origins = by_queue.setdefault(self._queue_of(request, options), ([], []))
            messages.append(message)
            origins.append(request)
        for queue, (messages, origins) in by_queue.items():
            await self._send(queue, messages, origins, options.delay)
        return ids

    async def deposit(
        self, requests: Sequence[object], options: PostOptions, transaction: object
    ) -> Sequence[str]:
        """Write requests into the outbox, in a transaction of the user's, and return their
        messages' ids. They are sent when it has committed, and never if it is rolled back.
        """
        writer = self.writer(transaction)
        posted = await self.prepare(requests, options)
        writing = writer.write(posted)
        if writing is not None:
            await writing
        return [each.id for each in posted]

    async def clear(self, ids: Sequence[str]) -> None:
        """Send what waits in the outbox under these ids, and return when it was accepted."""
        await self.relay("clear").clear(ids)

    def relay(self, operation: str = "relay") -> Relay:
        """A relay of the outbox through this."""
        from .outbox.relay import Relay

        outbox = self._require_outbox(operation)
        return Relay(outbox, self.forward, clock=self._clock, counters=self._counters)

    def writer(self, transaction: object) -> Writer:
        """What writes in this transaction; `ConfigurationError` without an outbox."""
        return self._require_outbox("post.transaction").writer(transaction)

    def _require_outbox(self, field: str) -> Outbox:
        if self._outbox is None:
            remedy = "the app has no outbox; use App(outbox=PostgresOutbox(…)) or SqliteOutbox(…)"
            raise ConfigurationError(field, None, remedy)
        return self._outbox

    async def prepare(self, requests: Sequence[object], options: PostOptions) -> Sequence[Posted]:
        """Requests as messages that are ready to be sent: encoded, encrypted, in their trace."""
        return [await self._prepare(request, options) for request in requests]

    async def _prepare(self, request: object, options: PostOptions) -> Posted:
        from .outbox.store import Posted
        from .stores.packing import pack_checked

        queue = self._queue_of(request, options)
        checked_queue("queue", queue)
        message = self._encode(request, options)
        is_ready_made = message is request
        if message.deduplication_id is None:
            # A relay that has to send it again sends the same.
            message = replace(message, deduplication_id=message.id)
        if self._encryption is not None:
            message = await self._encryption.encrypt(message, queue, is_ready_made=is_ready_made)
        self._require_sendable(message, queue, options.delay)
        if self._telemetry is not None:
            # Counted as sent when it is.
            with self._telemetry.sending(queue, [message], is_copy=True) as [traced]:
                message = traced
        return Posted(
            destination=queue,
            id=message.id,
            group=message.group,
            delay_s=options.delay.total_seconds(),
            packed=pack_checked(message),
        )

    def _require_sendable(self, message: Message, queue: str, delay: timedelta) -> None:
        """Refuse at once what the relay could only set aside."""
        can = self._gateway.capabilities
        size = len(message.body)
        if can.max_body_bytes is not None and size > can.max_body_bytes:
            raise MessageTooLarge(queue, size, can.max_body_bytes)
        if can.max_delay_s is not None and delay.total_seconds() > can.max_delay_s:
            why = f"it delays a message for {can.max_delay_s:g} s at most"
            raise UnsupportedOperation(can.gateway, f"a delay of {delay}", why)

    async def forward(
        self, queue: str, messages: Sequence[Message], delay_s: float
    ) -> Sequence[str]:
        """Send what `prepare` made, as it is."""
        producer = self._producers.get(queue)
        if producer is None:
            producer = await self._open(queue)
        if self._telemetry is None:
            return await producer.send(messages, delay_s=delay_s)
        with self._telemetry.sending(queue, messages) as traced:
            return await producer.send(traced, delay_s=delay_s)

    async def send(
        self, queue: str, messages: Sequence[Message], *, delay: timedelta = _NO_DELAY
    ) -> Sequence[str]:
        """Send ready-made messages; encrypted, if the app encrypts, unless they are already."""
        return await self._send(queue, messages, messages, delay)

    async def _send(
        self, queue: str, messages: Sequence[Message], origins: Sequence[object], delay: timedelta
    ) -> Sequence[str]:
        """`origins` are what was posted: a message that is its own came ready-made."""
        if queue not in self._producers:
            await self._open(queue)
        encryption = self._encryption
        if encryption is not None:
            # Only what came ready-made may be encrypted already.
            messages = [
                await encryption.encrypt(message, queue, is_ready_made=message is origin)
                for message, origin in zip(messages, origins, strict=True)
            ]
        return await self.forward(queue, messages, delay.total_seconds())

    async def aclose(self) -> None:
        """Close every producer that was needed."""
        while self._producers:
            _, producer = self._producers.popitem()
            await producer.aclose()

    async def _open(self, queue: str) -> ProducerPort:
        checked_queue("queue", queue)
        # A program that sends before any of its pumps ran must find its queue as well.
        spec = self._made.get(queue)
        if spec is not None:
            target = self._made.get(spec.dead_letter_queue or "")
            for needed in (target, spec):
                if needed is not None:
                    await self._gateway.admin().ensure(needed, MakeChannels.CREATE)
        return self._producers.setdefault(queue, self._gateway.producer(queue))

    def _encode(self, request: object, options: PostOptions) -> Message:
        if isinstance(request, Message):
            if self._encryption is None and request.body.startswith(MAGIC):
                _require_envelope(request)
            return request
        message = self._mapper.encode(
            request,
            created_at_s=self._clock.time_s(),
            group=options.group,
            deduplication_id=options.deduplication_id,
            correlation_id=options.correlation_id or _inherited_correlation_id(),
            reply_to=options.reply_to,
            headers=options.headers,
        )
        if self._encryption is None and PAST_MAGIC > message.body >= MAGIC:
            # Every receiver would take it for encrypted, and refuse it.
            raise _looks_encrypted(message)
        return message

    def _queue_of(self, request: object, options: PostOptions) -> str:
        queue = options.queue or self._routes.get(type(request))
        if queue is None:
            name = type(request).__qualname__
            raise ConfigurationError(
                "post.queue",
                None,
                f"{name} has no route; use app.route({name}, queue), or name the queue",
            )
        return queue


def _require_envelope(message: Message) -> None:
    """What is encrypted may be sent on; what only looks so, every receiver would refuse."""
    from .crypto.envelope import parse

    try:
        parse(message.body)
    except CryptoError as error:
        raise _looks_encrypted(message) from error


def _looks_encrypted(message: Message) -> CryptoError:
    from .crypto.errors import PlaintextLooksSealed

    return PlaintextLooksSealed(message.id)


def _inherited_correlation_id() -> str | None:
    context = current_context()
    message = None if context is None else context.message
    return None if message is None else message.correlation_id or message.id

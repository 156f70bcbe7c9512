"""Rejection: where a rejected message goes, what travels with it, and what happens when the
way there is blocked. One implementation for every gateway.

Routing ladder: DELIVERY_ERROR, and any reason we do not know, → dead-letter queue.
UNACCEPTABLE and CORRUPTED → invalid-message queue, else dead-letter queue. Neither configured →
acknowledged, with a warning and a count.

The routed copy is sent before the original is removed: dying in between leaves two, never
none, and the copy's de-duplication id makes them one where the provider de-duplicates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Self, assert_never

import attrs
from msgspec.structs import replace

from . import headers
from .backoff import Backoff
from .clock import Clock
from .decide import MAX_DETAIL
from .errors import ConfigurationError, StorageFailed
from .message import Delivery, Message
from .observability import vocabulary
from .observability.log import get_logger
from .observability.telemetry import Counters, Telemetry
from .outcome import (
    ACK,
    INVALID_REASONS,
    Ack,
    Defer,
    Fate,
    Reason as Reason,
    Reject,
    RejectionReason,
)
from .ports import PayloadEncryption, ProducerPort
from .stores.spill import SpilledMessage, SpillStore
from .subscription import DeadLetter, OnRoutingFailure, Subscription

_log = get_logger("pump.rejection")


@attrs.frozen
class Routed:
    """What became of a rejected message: `fate`, and where its copy is or is on its way to."""

    action: Ack | Defer
    """What the broker is told of the original."""
    destination: str | None
    """The queue that has the copy, or will have it from the spill; None where there is no copy."""
    fate: Fate = Fate.ROUTED


@attrs.frozen
class Copied:
    """A reject whose copy is made: whatever becomes of the call, there must be no second one."""

    rejection: Reject
    routed: Routed

    @classmethod
    def by(cls, rejection: Reject, routed: Routed) -> Self | None:
        """None where nothing was copied: such a reject starts over."""
        return cls(rejection, routed) if routed.fate in (Fate.ROUTED, Fate.SPILLED) else None


def rejection_of(reason: object, detail: object) -> Reject:
    """The rejection as it is reported: a known reason is found whatever its case, and
    the detail is cut at `MAX_DETAIL`. `ConfigurationError` for what is not text.
    """
    if not isinstance(reason, str) or not reason.strip():
        remedy = "use a RejectionReason, or a text of your own, which goes to the dead-letter queue"
        raise ConfigurationError("reject.reason", reason, remedy)
    if not isinstance(detail, str):
        raise ConfigurationError("reject.detail", detail, 'use text; "" says nothing more')
    return Reject(_known(reason), detail[:MAX_DETAIL])


def _known(reason: str) -> Reason:
    try:
        return RejectionReason(reason)
    except ValueError:
        return reason


def destination_of(subscription: Subscription, reason: Reason) -> str | None:
    """The queue for messages rejected for this reason, None when there is none.

    A reason we do not know, of another version or the application's own, is a delivery error.
    """
    if _known(reason) in INVALID_REASONS:
        return subscription.invalid_queue or subscription.dead_letter_queue
    return subscription.dead_letter_queue


def enrich(delivery: Delivery, reason: Reason, detail: str, *, rejected_at_s: float) -> Message:
    """The message that is routed: the original, untouched but for the added headers."""
    message = delivery.message
    timestamp = datetime.fromtimestamp(rejected_at_s, UTC).isoformat()
    native = {} if delivery.native is None else {headers.NATIVE: delivery.native}
    return replace(
        message,
        deduplication_id=copy_id(delivery, reason),
        headers={
            **message.headers,
            **native,
            headers.ORIGINAL_TOPIC: delivery.queue,
            headers.REJECTION_REASON: str(reason),
            headers.REJECTION_DETAIL: detail,
            headers.REJECTION_TIMESTAMP: timestamp,
            headers.ORIGINAL_TYPE: headers.original_type(message.type, message.headers),
            headers.ATTEMPTS: str(delivery.attempt),
        },
    )


def copy_id(delivery: Delivery, reason: Reason) -> str:
    """The same for a rejection repeated after a crash, another one after a redrive."""
    message = delivery.message
    before = message.headers.get(headers.REJECTION_TIMESTAMP, "")
    source = "\0".join((message.id, delivery.queue, str(reason), before))
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()


class RejectionRouter:
    """Routes the rejected messages of one subscription.

    The producer is lazy: nothing is built, connected or looked up before the first rejection,
    and a failure to build it is met again, not remembered, by the next one.
    """

    def __init__(
        self,
        subscription: Subscription,
        *,
        producer_of: Callable[[str], ProducerPort],
        spill: SpillStore,
        clock: Clock,
        counters: Counters,
        telemetry: Telemetry | None = None,
        encryption: PayloadEncryption | None = None,
        send_timeout_s: float = 30.0,
    ) -> None:
        self._subscription = subscription
        self._producer_of = producer_of
        self._spill = spill
        self._clock = clock
        self._counters = counters
        self._telemetry = telemetry
        self._encryption = encryption
        self._send_timeout_s = send_timeout_s
        self._producers: dict[str, ProducerPort] = {}

    async def route(self, delivery: Delivery, reason: Reason, detail: str) -> Routed:
        """Send the enriched copy, and say what to do with the original.

        Never raises for the copy's sake: a send that fails, or is not answered, is met by the
        subscription's `on_routing_failure`. Reason and detail are read as `rejection_of` does.
        """
        rejection = rejection_of(reason, detail)
        reason, detail = rejection.reason, rejection.detail
        destination = destination_of(self._subscription, reason)
        if destination is None:
            return self._discard(delivery, reason, detail)
        copy = enrich(delivery, reason, detail, rejected_at_s=self._clock.time_s())
        if self._encryption is not None:
            await self._encryption.routing(delivery)
        try:
            async with self._clock.timeout(self._send_timeout_s):
                await self._send(destination, copy)
        except Exception as error:  # broad: whatever keeps it from its queue, the policy decides
            return await self._meet_failure(delivery, copy, destination, reason, error)
        self._note(vocabulary.MESSAGE_REJECTED, delivery, reason, destination)
        self._counters.add(vocabulary.REJECTED, reason=str(reason), queue=delivery.queue)
        return Routed(ACK, destination)

    async def aclose(self) -> None:
        """Close the producers that were needed."""
        while self._producers:
            _, producer = self._producers.popitem()
            await producer.aclose()

    async def _send(self, destination: str, copy: Message) -> None:
        producer = self._producer(destination)
        if self._telemetry is None:
            await producer.send([copy])
            return
        # The copy keeps the trace's context that the original came with (R28).
        with self._telemetry.sending(destination, [copy], is_copy=True) as traced:
            await producer.send(traced)

    def _producer(self, queue: str) -> ProducerPort:
        if queue not in self._producers:
            self._producers[queue] = self._producer_of(queue)
        return self._producers[queue]

    def _discard(self, delivery: Delivery, reason: Reason, detail: str) -> Routed:
        _log.warning(
            vocabulary.MESSAGE_DISCARDED,
            message_id=delivery.message.id,
            queue=delivery.queue,
            reason=str(reason),
            remedy="give the subscription a dead_letter_queue",
        )
        self._counters.add(vocabulary.DISCARDED, reason=str(reason), queue=delivery.queue)
        return Routed(ACK, None, Fate.DISCARDED)

    async def _meet_failure(
        self,
        delivery: Delivery,
        copy: Message,
        destination: str,
        reason: Reason,
        error: Exception,
    ) -> Routed:
        _log.error(
            vocabulary.ROUTING_FAILED,
            message_id=copy.id,
            queue=delivery.queue,
            destination=destination,
            reason=str(reason),
            error=repr(error),
            policy=self._subscription.on_routing_failure.value,
        )
        self._counters.add(vocabulary.ROUTING_FAILURES, queue=delivery.queue)
        if self._telemetry is not None:
            self._telemetry.failed("route", destination, error)
        match self._subscription.on_routing_failure:
            case OnRoutingFailure.SPILL:
                return await self._spill_copy(delivery, copy, destination, reason)
            case OnRoutingFailure.DELETE:
                self._note(vocabulary.MESSAGE_LOST, delivery, reason, destination)
                return Routed(ACK, None, Fate.DISCARDED)
            case OnRoutingFailure.KEEP:
                return self._keep(delivery, reason, destination)
            case policy:
                assert_never(policy)

    async def _spill_copy(
        self, delivery: Delivery, copy: Message, destination: str, reason: Reason
    ) -> Routed:
        spilled = SpilledMessage(
            message=copy, destination=destination, spilled_at_s=self._clock.time_s()
        )
        try:
            await self._spill.put(spilled)
        except StorageFailed as error:
            _log.error(vocabulary.SPILL_FAILED, message_id=copy.id, error=repr(error))
            return self._keep(delivery, reason, destination)
        self._note(vocabulary.MESSAGE_SPILLED, delivery, reason, destination)
        self._counters.add(vocabulary.SPILLED, queue=delivery.queue)
        return Routed(ACK, destination, Fate.SPILLED)

    def _keep(self, delivery: Delivery, reason: Reason, destination: str) -> Routed:
        self._note(vocabulary.MESSAGE_KEPT, delivery, reason, destination)
        strategy = self._subscription.failure
        backoff = Backoff() if isinstance(strategy, DeadLetter) else strategy.backoff
        delay_s = backoff.delay_s(delivery.attempt, self._clock.chance())
        return Routed(Defer(delay_s), None, Fate.KEPT)

    def _note(self, event: str, delivery: Delivery, reason: Reason, destination: str) -> None:
        _log.info(
            event,
            message_id=delivery.message.id,
            queue=delivery.queue,
            reason=str(reason),
            destination=destination,
            attempt=delivery.attempt,
        )

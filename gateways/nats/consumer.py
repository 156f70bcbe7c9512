"""The consumer port of one NATS queue: pulls that leave nothing behind, and honest receipts."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from pump.clock import Clock
from pump.errors import ConnectionFailed, GatewayError, QueueNotFound, Throttled
from pump.message import Delivery
from pump.outcome import Defer, Refusal, Settlement
from pump.subscription import Subscription

from .connection import JetStream
from .errors import RequestRefused
from .link import Link, ServerRequest
from .names import CONSUMER, NATS
from .pulls import Arrived, Fetched, PullEnd, PullOptions, delivery_of, fetch
from .queue_settings import KnownQueues, NatsQueueFacts, NatsQueueSettings
from .receipts import HandBacks, Receipts, subject_of
from .settling import Limit, NatsSettling, Redrive, lease_of

_MAX_LOOKS = 3
"""How often a consumer that is not there is looked for, or made, before it is an error."""


class NatsConsumer:
    """Receives from one queue and settles what it received."""

    def __init__(
        self,
        api: JetStream,
        known: KnownQueues,
        subscription: Subscription,
        receipts: Receipts,
        *,
        clock: Clock,
    ) -> None:
        [*_, spec] = subscription.queue_specs()
        self._settings = NatsQueueSettings.from_spec(spec)
        self._names = self._settings.names
        self._api = api
        self._known = known
        self._clock = clock
        self._lease_s = subscription.lease.total_seconds()
        self._receipts = receipts
        self._hand_backs = HandBacks(api)
        self._settling = NatsSettling(api, self._names, receipts, self._hand_backs, clock=clock)
        self._redrive = Redrive(api.connection, self._names.queue, clock=clock)

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        """What was delivered too often is moved away on the way, and not returned."""
        ends_at_s = self._clock.now_s() + wait_s
        looks = 0
        while True:
            facts = await self._known.facts(self._settings)
            left_s = max(ends_at_s - self._clock.now_s(), 0.0)
            fetched = await self._fetch(facts, max_count, left_s)
            if fetched.arrived:
                deliveries = await self._accept(fetched, facts)
                if deliveries:
                    return deliveries
            elif fetched.end is PullEnd.DONE:
                return []
            else:
                looks += 1
                self._look_again(fetched, looks)
            if self._clock.now_s() >= ends_at_s and fetched.end is PullEnd.DONE:
                return []

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        """Past the lease's end, or a second time, is refused although the server would allow it.

        What is deferred at its last delivery is in the dead-letter queue afterwards.
        """
        limit = await self._limit_if_needed(settlements)
        if limit is None:
            return await self._settling.settle(settlements)
        moved: set[Delivery] = set()
        for each in settlements:
            delivery = each.delivery
            is_last = isinstance(each.action, Defer) and delivery.attempt >= limit.count
            if is_last and await self._move(delivery, limit, attempt=delivery.attempt):
                moved.add(delivery)
        return await self._settling.settle(
            [each for each in settlements if each.delivery not in moved]
        )

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> Sequence[Refusal]:
        """There is no end to extending."""
        if not deliveries:
            return ()
        facts = await self._known.facts(self._settings)
        return await self._settling.extend(deliveries, lease_s=lease_s, granted_s=facts.lease_s)

    async def aclose(self) -> None:
        """Nothing to release: the connection is the gateway's."""

    async def _fetch(self, facts: NatsQueueFacts, max_count: int, wait_s: float) -> Fetched:
        options = PullOptions(
            consumer=f"{self._names.stream}.{CONSUMER}",
            max_count=1 if facts.is_strict else min(max_count, NATS.receive_batch),
            wait_s=wait_s,
            is_bounded=facts.is_bounded,
        )
        return await fetch(
            self._api,
            options,
            clock=self._clock,
            unwanted=lambda link, arrived: self._give_back(link, [arrived]),
        )

    def _give_back(self, link: Link, arrived: Sequence[Arrived]) -> None:
        """Have it delivered again at once, untried; nothing waits for it."""
        link.later(self._hand_backs.give_back(link, [each.message for each in arrived]))

    def _look_again(self, fetched: Fetched, looks: int) -> None:
        """Raise, unless asking once more may help."""
        queue = self._names.queue
        match fetched.end:
            case PullEnd.CROWDED:
                raise Throttled(f"queue {queue!r} (too many receives wait on it)")
            case PullEnd.REFUSED:
                raise RequestRefused(f"queue {queue!r}", 0, fetched.status)
            case PullEnd.GONE:
                # There is no stream, which asking will show, or its consumer was deleted.
                self._known.forget(queue)
        if looks < _MAX_LOOKS:
            return
        if fetched.end is PullEnd.GONE:
            raise QueueNotFound(queue)
        raise ConnectionFailed(self._api.connection.settings.target, fetched.status)

    async def _accept(self, fetched: Fetched, facts: NatsQueueFacts) -> Sequence[Delivery]:
        """Enter what was received; until it is returned, a failure hands all of it back."""
        try:
            read = [
                delivery_of(each, self._names, lease_s=self._lease_s, is_ordered=facts.is_strict)
                for each in fetched.arrived
            ]
            handed_back: set[str] = set()
            if any(each.attempt > 1 for each in read):
                read, handed_back = await self._hand_backs.counted(read)
            deliveries = await self._lease(read, facts)
            now_s = self._clock.now_s()
            self._receipts.forget_over(now_s)
            for each in deliveries:
                self._receipts.enter(
                    each.receipt,
                    each.lease_expires_at_s,
                    now_s=now_s,
                    is_handed_back=each.receipt in handed_back,
                )
            limit = self._limit(facts)
            if limit is None:
                return deliveries
            return [each for each in deliveries if not await self._is_exhausted(each, limit)]
        except BaseException:
            self._give_back(fetched.link, fetched.arrived)
            raise

    async def _is_exhausted(self, delivery: Delivery, limit: Limit) -> bool:
        if delivery.attempt <= limit.count:
            return False
        # The delivery that brought it here could not have been completed by a consumer.
        await self._move(delivery, limit, attempt=delivery.attempt - 1)
        return True

    async def _move(self, delivery: Delivery, limit: Limit, *, attempt: int) -> bool:
        lease = self._receipts.take(delivery.receipt, self._clock.now_s())
        if lease is None:
            return False
        is_moved = False
        try:
            is_moved = await self._redrive.move(delivery, limit, attempt=attempt)
        finally:
            if is_moved:
                if lease.is_handed_back:
                    self._settling.forget_hand_backs([delivery])
                self._receipts.spend(delivery.receipt)
            else:
                self._receipts.give_back(delivery.receipt)
        return is_moved

    async def _lease(self, deliveries: list[Delivery], facts: NatsQueueFacts) -> list[Delivery]:
        """Where this subscription's lease is not the queue's own, ask for it."""
        payload = lease_of(self._lease_s, granted_s=facts.lease_s)
        if not payload.startswith(b"-NAK"):
            return deliveries
        asked_at_s = self._clock.now_s()
        answers = await self._api.connection.request_all(
            [
                ServerRequest(subject=subject_of(each.receipt), payload=payload)
                for each in deliveries
            ]
        )
        for answer in answers:
            if isinstance(answer, GatewayError):
                raise answer
        ends_at_s = asked_at_s + self._lease_s
        return [replace(each, lease_expires_at_s=ends_at_s) for each in deliveries]

    def _limit(self, facts: NatsQueueFacts) -> Limit | None:
        settings = self._settings
        count = settings.max_receive_count or facts.max_receive_count
        target = settings.dead_letter_queue or facts.dead_letter_queue
        return Limit(count, target) if count and target else None

    async def _limit_if_needed(self, settlements: Sequence[Settlement]) -> Limit | None:
        if not any(isinstance(each.action, Defer) for each in settlements):
            return None
        return self._limit(await self._known.facts(self._settings))

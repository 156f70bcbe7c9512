"""The consumer port of one SQS queue: long polls that lose nothing, and honest receipts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from math import floor
from typing import Any

import attrs

from pump.backoff import Backoff
from pump.clock import Clock
from pump.errors import ConnectionFailed, GatewayError, PumpError
from pump.message import Delivery, new_id
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.outcome import ABANDON, Action, Defer, Refusal, Settlement
from pump.subscription import Subscription

from .._aws.sdk_transport import Polling, Reply
from .calls import (
    MAX_BATCH,
    MAX_LONG_POLL_S,
    QueueAddress,
    QueueCalls,
    receive_request,
    whole_seconds,
)
from .claims import Claims
from .queue_settings import QueueOptions
from .settling import ClaimedBodies, SqsReceipts, SqsSettling, deliveries_of

_log = get_logger("gateways.sqs")
_DOUBT_S = 1.0
"""How long before its end a lease cannot be proved any more, or a tenth of the lease: SQS counts
from before its answer is here, and extends leases that are over."""


class SqsConsumer:
    """Receives from one queue and settles what it received."""

    def __init__(
        self,
        calls: QueueCalls,
        subscription: Subscription,
        receipts: SqsReceipts,
        *,
        clock: Clock,
        claims: Claims | None,
        silence_s: float,
    ) -> None:
        self._calls = calls
        self._clock = clock
        self._silence_s = silence_s
        self._lease_s = whole_seconds(subscription.lease.total_seconds())
        # SQS fills a batch from one group, but strict order has one of a group in flight.
        self._max_count = 1 if subscription.ordering_guarantee else MAX_BATCH
        self._unwrap_sns = QueueOptions.parse(subscription.options).unwrap_sns is not False
        is_fifo = QueueAddress.parse(subscription.queue).is_fifo
        self._attempts = ReceiveAttempts(lease_s=self._lease_s) if is_fifo else None
        self._bodies = (
            None
            if claims is None
            else ClaimedBodies(
                claims,
                receipts,
                is_fifo=is_fifo,
                clock=clock,
                patience_s=self._lease_s / 4,
            )
        )
        self._settling = SqsSettling(
            calls,
            receipts,
            clock=clock,
            lease_s=self._lease_s,
            doubt_s=min(_DOUBT_S, self._lease_s / 10),
            on_deleted=None if self._bodies is None else self._bodies.discard,
        )
        self._receipts = receipts
        self._orphaned_polls = OrphanedPolls(self._give_back)

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        """Any wait is met by long polls of whole seconds and a short one for the rest (T12)."""
        ends_at_s = self._clock.now_s() + wait_s
        count = min(max_count, self._max_count)
        poll: Poll | None = first_poll(wait_s)
        while poll is not None:
            if poll.pause_s:
                await self._clock.sleep(poll.pause_s)
            deliveries = await self._poll(count, poll.wait_s)
            if deliveries or poll.is_last:
                return deliveries
            poll = next_poll(ends_at_s - self._clock.now_s())
        return []

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        """Past the lease's end, or a second time, is refused although SQS would allow it."""
        return await self._settling.settle(settlements)

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> Sequence[Refusal]:
        """Twelve hours after the receive there is nothing left to extend."""
        return await self._settling.extend(deliveries, lease_s)

    async def aclose(self) -> None:
        """Waits for polls that were cancelled but not ended, at most as long as they wait:
        what they bring is made available again.
        """
        await self._orphaned_polls.aclose()
        if self._bodies is not None:
            await self._bodies.aclose()

    async def _poll(self, count: int, wait_s: int) -> Sequence[Delivery]:
        polling = asyncio.create_task(self._ask(count, wait_s), name="sqs poll")
        try:
            return await asyncio.shield(polling)
        except asyncio.CancelledError:
            self._orphaned_polls.add(polling)
            raise

    async def _ask(self, count: int, wait_s: int) -> Sequence[Delivery]:
        request = receive_request(max_count=count, wait_s=wait_s, lease_s=self._lease_s)
        polling = Polling(wait_s + self._silence_s, self._clock.now_s())
        reply = await self._received(request, polling)
        raw = reply.get("Messages")
        if not raw:
            return []
        # The lease began at SQS, somewhere between question and answer. A message that comes
        # during the wait is answered at once, so only what exceeds the wait was spent on the
        # way, and is counted as spent of the lease.
        now_s = self._clock.now_s()
        ends_at_s = min(now_s, polling.started_at_s + wait_s) + self._lease_s
        deliveries = deliveries_of(
            raw,
            queue=self._calls.queue,
            ends_at_s=ends_at_s,
            is_fifo=self._attempts is not None,
            unwrap_sns=self._unwrap_sns,
        )
        self._receipts.enter(
            [delivery.receipt for delivery in deliveries], ends_at_s=ends_at_s, now_s=now_s
        )
        if self._bodies is None:
            return deliveries
        ready, unready = await self._bodies.fetch(deliveries)
        await self._put_off(unready)
        return ready

    async def _received(self, request: dict[str, Any], polling: Polling) -> Reply:
        if self._attempts is None:
            return await self._calls.call("receive_message", request, polling=polling)
        attempt = self._attempts.next(request["MaxNumberOfMessages"], polling.started_at_s)
        with self._attempts.asking(attempt, request) as named:
            return await self._calls.call("receive_message", named, polling=polling)

    async def _put_off(self, deliveries: Sequence[Delivery]) -> None:
        """What cannot be had from S3 now is asked for again later, and ever later."""
        if deliveries:
            attempt = max(delivery.attempt for delivery in deliveries)
            delay_s = Backoff().delay_s(attempt, self._clock.chance())
            await self._settle_quietly(deliveries, Defer(delay_s))

    async def _give_back(self, deliveries: Sequence[Delivery]) -> None:
        if deliveries:
            await self._settle_quietly(deliveries, ABANDON)

    async def _settle_quietly(self, deliveries: Sequence[Delivery], action: Action) -> None:
        try:
            await self._settling.settle([Settlement(each, action) for each in deliveries])
        except GatewayError as error:
            # Their leases run out by themselves.
            _log.warning(vocabulary.SETTLE_FAILED, error=repr(error), count=len(deliveries))


# Polls: how a wait of any length is made of SQS's whole seconds. Pure.
#
# | left of the wait | then                                                                    |
# |------------------|-------------------------------------------------------------------------|
# | a second or more | a long poll of as many whole seconds as SQS allows                      |
# | less             | a pause for the rest, and a last look without waiting                   |
#
# A long poll is never cut short: SQS would go on with it, lease a message and find no receiver.


@attrs.frozen
class Poll:
    """One request: wait before it, and let SQS wait."""

    pause_s: float
    wait_s: int
    is_last: bool


def first_poll(wait_s: float) -> Poll:
    """The first request of a receive; a short one when there is no whole second to wait."""
    return Poll(0.0, _long_poll_s(wait_s), wait_s <= 0)


def next_poll(left_s: float) -> Poll | None:
    """The request after one that found nothing, None when the time is over."""
    if left_s <= 0:
        return None
    if left_s < 1:
        return Poll(left_s, 0, True)
    return Poll(0.0, _long_poll_s(left_s), False)


def _long_poll_s(left_s: float) -> int:
    return max(0, min(MAX_LONG_POLL_S, floor(left_s)))


# Receive attempts: on a FIFO queue, a receive whose answer was lost is asked again by its name.
#
# SQS then gives the same messages once more, instead of leaving their groups locked until the
# leases end. It remembers an attempt for five minutes.

_MEMORY_S = 300.0


@attrs.frozen
class Attempt:
    """One receive, by name. Its repetition asks for as many messages as it did."""

    name: str
    max_count: int
    asked_at_s: float


class ReceiveAttempts:
    """The attempts of one consumer that got no answer."""

    def __init__(self, *, lease_s: float) -> None:
        # Past the lease any consumer may get the messages, and SQS refuses the repetition.
        self._memory_s = min(_MEMORY_S, lease_s)
        self._unanswered: list[Attempt] = []

    def next(self, max_count: int, now_s: float) -> Attempt:
        """An attempt that had no answer and asked for no more than this; else a new one."""
        self._unanswered = [
            each for each in self._unanswered if now_s - each.asked_at_s < self._memory_s
        ]
        for attempt in self._unanswered:
            if attempt.max_count <= max_count:
                self._unanswered.remove(attempt)
                return attempt
        return Attempt(new_id(), max_count, now_s)

    @contextmanager
    def asking(self, attempt: Attempt, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The request by the attempt's name; remembered when no answer comes."""
        try:
            yield {
                **request,
                "MaxNumberOfMessages": attempt.max_count,
                "ReceiveRequestAttemptId": attempt.name,
            }
        except (ConnectionFailed, asyncio.CancelledError):
            self._unanswered.append(attempt)
            raise


# Orphaned polls: long polls whose receiver was cancelled, but which SQS still answers.
#
# Dropping the connection would not help: SQS goes on waiting, leases a message without a
# receiver, and hides it until the lease ends. So the poll is left to end by itself, and what it
# brings is given back at once.

PendingPoll = asyncio.Task[Sequence[Delivery]]


class OrphanedPolls:
    """The abandoned polls of one consumer."""

    def __init__(self, give_back: Callable[[Sequence[Delivery]], Awaitable[None]]) -> None:
        self._give_back = give_back
        self._ending: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._ending)

    def add(self, polling: PendingPoll) -> None:
        """See a poll to its end, and give back what it brings."""
        ending = asyncio.create_task(self._see_off(polling), name="sqs orphaned poll")
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def aclose(self) -> None:
        """Wait until every one has ended; cancelled, end them at once."""
        await asyncio.gather(*self._ending)

    async def _see_off(self, polling: PendingPoll) -> None:
        try:
            deliveries = await polling
        except PumpError:
            return  # It failed, so it holds nothing that we know of.
        await self._give_back(deliveries)

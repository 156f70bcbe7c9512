"""Sessions: the message groups of a FIFO queue, each for one consumer at a time.

While one message of a group is in flight, SQS gives no consumer any of that group: that is the
lock. It lasts as long as the leases, and is renewed with them. What follows from it:

* SQS chooses the group: a session cannot be asked for by its id.
* A session is what one receive brought, ten messages at most. When they are settled it is over:
  a second receive might bring another group.
* Messages of other groups that came along are handed back at once. SQS counts that as a receive,
  so where it counts for something (`max_receive_count`) a session is one message long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
from msgspec.structs import replace

from pump.clock import Clock
from pump.errors import GatewayError, SessionLockLost, UnsupportedOperation
from pump.message import Delivery, Message
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.outcome import ABANDON, Abandon, Ack, Defer, Refusal, Settlement
from pump.ports import ConsumerPort
from pump.subscription import Subscription

from .calls import MAX_BATCH, MAX_VISIBILITY_S, SQS, QueueAddress, whole_seconds
from .wire import encode

_log = get_logger("gateways.sqs")


def session_consumption(subscription: Subscription, session: str | None) -> Subscription:
    """How to consume for sessions; raises `UnsupportedOperation` where SQS has none to give."""
    address = QueueAddress.parse(subscription.queue)
    if not address.is_fifo:
        raise UnsupportedOperation(
            SQS.gateway,
            f"sessions on the standard queue {subscription.queue!r}",
            f"only a FIFO queue locks a message group; name the queue {address.name + '.fifo'!r}",
        )
    if session is not None:
        raise UnsupportedOperation(
            SQS.gateway,
            f"accepting session {session!r} by its id",
            "SQS itself chooses the message group of a receive; accept the next session, or give "
            "what must be reached by name a queue of its own",
        )
    # One of a group at a time would be a session of one message; a session keeps the order itself.
    return attrs.evolve(subscription, ordering_guarantee=False)


async def accept(
    consumer: ConsumerPort, subscription: Subscription, *, wait_s: float, clock: Clock
) -> SqsSession | None:
    """The session of the next message, None when there is no message for `wait_s`."""
    max_count = MAX_BATCH if subscription.max_receive_count is None else 1
    deliveries = await consumer.receive(max_count=max_count, wait_s=wait_s)
    if not deliveries:
        return None
    group = _group_of(deliveries[0].message)
    ours = [each for each in deliveries if _group_of(each.message) == group]
    others = [each for each in deliveries if each not in ours]
    try:
        await _hand_back(consumer, others)
    except BaseException:
        await _hand_back(consumer, ours)
        raise
    return SqsSession(consumer, ours, lease_s=subscription.lease.total_seconds(), clock=clock)


class SqsSession:
    """The messages of one group that one receive brought."""

    def __init__(
        self,
        consumer: ConsumerPort,
        deliveries: Sequence[Delivery],
        *,
        lease_s: float,
        clock: Clock,
    ) -> None:
        self._consumer = consumer
        self._first = deliveries[0]
        self._lease_s = lease_s
        self._clock = clock
        self._ends_at_s = self._first.lease_expires_at_s
        self._ceiling_s = self._ends_at_s - whole_seconds(lease_s) + MAX_VISIBILITY_S
        self._held = dict.fromkeys(deliveries)
        """Received and not settled: together they are the lock."""
        self._unread = list(deliveries)
        """Of these, the ones that no receive has asked for yet."""
        self._is_ending = False
        self.on_closed: Callable[[SqsSession], None] | None = None
        """Called at the close, for the account of what is open."""

    @property
    def id(self) -> str:
        return self._first.message.group or ""

    @property
    def lock_expires_at_s(self) -> float | None:
        """With the last message in flight, the lock is gone, and nothing is left to lose."""
        return self._ends_at_s if self._held else None

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        """Never waits: no more of this group come while it is locked."""
        if self._is_ending:
            return []
        taken, self._unread = self._unread[:max_count], self._unread[max_count:]
        return taken

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        """A message that comes again ends the session: its successors are handed back."""
        performed = self._with_successors(settlements)
        refusals = await self._consumer.settle(performed)
        kept = {refusal.delivery for refusal in refusals if not refusal.is_final}
        for delivery in (each.delivery for each in performed):
            if delivery not in kept:
                self._held.pop(delivery, None)
        self._unread = [each for each in self._unread if each in self._held]
        asked = {settlement.delivery for settlement in settlements}
        return [refusal for refusal in refusals if refusal.delivery in asked]

    async def renew(self) -> None:
        """Extends everything in flight; twelve hours after the receive there is no more."""
        asked_at_s = self._clock.now_s()
        refusals = await self._consumer.extend(list(self._held), lease_s=self._lease_s)
        for refusal in refusals:
            if refusal.is_final:
                raise SessionLockLost(self._first.queue, self.id) from refusal.error
        for refusal in refusals:
            raise refusal.error
        self._ends_at_s = min(asked_at_s + self._lease_s, self._ceiling_s)

    async def aclose(self) -> None:
        """What SQS cannot be told of runs out by itself."""
        held, self._held, self._is_ending = list(self._held), {}, True
        if self.on_closed is not None:
            self.on_closed(self)
        try:
            if held:
                await self._consumer.settle([Settlement(each, ABANDON) for each in held])
        finally:
            await self._consumer.aclose()

    def _with_successors(self, settlements: Sequence[Settlement]) -> Sequence[Settlement]:
        again = [each.action for each in settlements if not isinstance(each.action, Ack)]
        if not again:
            return settlements
        self._is_ending = True
        # As late as the first of them: a group's message that can be seen may be given out before
        # one that is hidden, by servers that are less strict than AWS.
        behind = Defer(max(each.delay_s if isinstance(each, Defer) else 0.0 for each in again))
        return [
            *(
                replace(each, action=behind) if isinstance(each.action, Abandon) else each
                for each in settlements
            ),
            *(Settlement(each, behind) for each in self._unread),
        ]


def _group_of(message: Message) -> str | None:
    """The group that SQS has the message in, which is not always the one we call it by."""
    return encode(Message(body=b"", group=message.group), is_fifo=True).group


async def _hand_back(consumer: ConsumerPort, deliveries: Sequence[Delivery]) -> None:
    if not deliveries:
        return
    try:
        await consumer.settle([Settlement(each, ABANDON) for each in deliveries])
    except GatewayError as error:
        # Their leases run out by themselves.
        _log.warning(vocabulary.SETTLE_FAILED, error=repr(error), count=len(deliveries))

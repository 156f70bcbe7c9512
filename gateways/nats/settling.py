"""Settling: acks, naks and leases, each confirmed by the server; and redrive.

| our word         | NATS's                                                               |
|------------------|----------------------------------------------------------------------|
| ack              | `+ACK`                                                               |
| defer            | `-NAK`, with the delay                                               |
| abandon          | `-NAK`, after its hand-back was written down                         |
| extend           | `+WPI` for the queue's own lease; for another one `-NAK` with a      |
|                  | delay: until that is over it stays in flight, and can be acked       |
| dead-letter      | `+TERM`, after its copy is stored                                    |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import attrs

from pump.clock import Clock
from pump.errors import ConnectionFailed, GatewayError, MessageTooLarge, QueueNotFound
from pump.message import Delivery
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.outcome import Abandon, Ack, Action, Defer, Refusal, Settlement

from .._kit.leases import Failures, LeaseSettler
from .._kit.queues import dead_letter
from .connection import ApiError, JetStream, NatsConnection, fault_of, nanoseconds, read_answer
from .errors import CONSUMER_NOT_FOUND, STREAM_NOT_FOUND
from .link import Answer, NoResponders, ServerRequest
from .names import COARSE_S, CONSUMER, GRACE_S, QueueNames
from .receipts import NAK, HandBacks, NatsLease, Receipts, subject_of
from .wire import MESSAGE_ID, encode, legal_id, size_of

ACK = b"+ACK"
TERM = b"+TERM"
IN_PROGRESS = b"+WPI"


def nak(delay_s: float) -> bytes:
    """Have it delivered again after a delay."""
    return NAK if delay_s <= 0 else b'-NAK {"delay":%d}' % nanoseconds(delay_s)


def lease_of(lease_s: float, *, granted_s: float) -> bytes:
    """Have the lease end so long from now; `granted_s` is what the queue grants by itself."""
    return IN_PROGRESS if abs(lease_s - granted_s) < 1e-6 else nak(lease_s + GRACE_S)


def payload_of(action: Action) -> bytes:
    """What the server is told."""
    match action:
        case Ack():
            return ACK
        case Abandon():
            return NAK
        case Defer(delay_s=delay_s):
            return nak(delay_s)
        case _:
            assert_never(action)


class NatsSettling:
    """Settles and extends what was received from one queue, as long as its leases last."""

    def __init__(
        self,
        api: JetStream,
        names: QueueNames,
        receipts: Receipts,
        hand_backs: HandBacks,
        *,
        clock: Clock,
    ) -> None:
        self._api = api
        self._connection = api.connection
        self._names = names
        self._receipts = receipts
        self._hand_backs = hand_backs
        self._clock = clock
        self._settler = LeaseSettler(names.queue, receipts, self._perform, clock=clock)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        """Apply each once; see `ConsumerPort.settle`."""
        # Connected first: a server that was restarted meanwhile costs some receipts.
        await self._connection.link()
        return await self._settler.settle(settlements)

    async def _perform(
        self, settlements: Sequence[Settlement], leases: Sequence[NatsLease]
    ) -> Failures:
        untried = [each.delivery for each in settlements if isinstance(each.action, Abandon)]
        if untried:
            await self._hand_backs.note(untried)
        answers = await self._ask(
            [
                ServerRequest(
                    subject=subject_of(each.delivery.receipt), payload=payload_of(each.action)
                )
                for each in settlements
            ]
        )
        _raise_if_all_failed(answers)
        self._note_deferrals(settlements, answers)
        failures = {
            each.delivery.receipt: self._fault(answer, each.delivery)
            for each, answer in zip(settlements, answers, strict=True)
            if not _is_confirmed(answer)
        }
        self.forget_hand_backs(
            [
                each.delivery
                for each, lease in zip(settlements, leases, strict=True)
                if lease.is_handed_back
                and isinstance(each.action, Ack)
                and each.delivery.receipt not in failures
            ]
        )
        return failures

    def _note_deferrals(self, taken: Sequence[Settlement], answers: Sequence[Answer]) -> None:
        now_s = self._clock.now_s()
        for each, answer in zip(taken, answers, strict=True):
            action = each.action
            if isinstance(action, Defer) and action.delay_s > COARSE_S and _is_confirmed(answer):
                due_at_s = now_s + action.delay_s
                self._receipts.deferred(each.delivery.receipt, due_at_s=due_at_s, now_s=now_s)

    def forget_hand_backs(self, removed: Sequence[Delivery]) -> None:
        """Of messages that are gone: nothing waits for it."""
        if removed:
            self._connection.later(lambda link: self._hand_backs.forget(link, removed))

    async def extend(
        self, deliveries: Sequence[Delivery], *, lease_s: float, granted_s: float
    ) -> Sequence[Refusal]:
        """Make each lease end `lease_s` from now; see `ConsumerPort.extend`."""
        await self._connection.link()
        now_s = self._clock.now_s()
        held: list[Delivery] = []
        refusals: list[Refusal] = []
        for each in deliveries:
            lease = self._receipts.find(each.receipt, now_s)
            if lease is None or lease.is_taken:
                # To extend what is being deferred would cut the deferral short.
                refusals.append(self._settler.refusal(each))
            else:
                held.append(each)
        if not held:
            return refusals
        payload = lease_of(lease_s, granted_s=granted_s)
        requests = [
            ServerRequest(subject=subject_of(each.receipt), payload=payload) for each in held
        ]
        answers = await self._ask(requests)
        _raise_if_all_failed(answers)
        for delivery, answer in zip(held, answers, strict=True):
            if _is_confirmed(answer):
                self._receipts.prolong(delivery.receipt, now_s + lease_s, now_s=now_s)
                continue
            if isinstance(answer, NoResponders):
                self._receipts.spend(delivery.receipt)
            refusals.append(Refusal(delivery, self._fault(answer, delivery)))
        return refusals

    def _fault(self, answer: Answer, delivery: Delivery) -> GatewayError:
        if isinstance(answer, GatewayError):
            return answer
        # The consumer is gone, and with it every lease it gave.
        return self._settler.invalid(delivery.receipt)

    async def _ask(self, requests: Sequence[ServerRequest]) -> list[Answer]:
        """What came of each; no responder counts only where there is no consumer."""
        answers = await self._connection.request_all(requests)
        is_unheard = any(isinstance(answer, NoResponders) for answer in answers)
        if not is_unheard or await self._is_gone():
            return answers
        between = ConnectionFailed(
            self._connection.settings.target,
            f"the consumer of queue {self._names.queue!r} has no leader at the moment",
        )
        return [between if isinstance(answer, NoResponders) else answer for answer in answers]

    async def _is_gone(self) -> bool:
        try:
            await self._api.ask(f"CONSUMER.INFO.{self._names.stream}.{CONSUMER}")
        except ApiError as error:
            return error.error_code in (CONSUMER_NOT_FOUND, STREAM_NOT_FOUND)
        return False


def _is_confirmed(answer: Answer) -> bool:
    return not isinstance(answer, GatewayError | NoResponders)


def _raise_if_all_failed(answers: Sequence[Answer]) -> None:
    errors = [answer for answer in answers if isinstance(answer, GatewayError)]
    if errors and len(errors) == len(answers):
        raise errors[0]


# Redrive: what was delivered too often moves to the dead-letter queue, by the gateway.
#
# The server counts the deliveries; a consumer that receives a message beyond the limit, or gives
# one back at the limit, stores a copy in the dead-letter queue and then removes the original. The
# copy's de-duplication id is the original's place in its stream, and its own id in case a stream of
# that name is not the one that was, so that two that do it at once, or one that died in between,
# leave one dead letter (T10).

_log = get_logger("gateways.nats")
_ID_BYTES = 256
"""More than the header of the copy's id takes."""


@attrs.frozen
class Limit:
    """After how many deliveries a message moves, and where."""

    count: int
    target: str


class Redrive:
    """Moves what one queue gave up on."""

    def __init__(self, connection: NatsConnection, queue: str, *, clock: Clock) -> None:
        self._connection = connection
        self._queue = queue
        self._stream = QueueNames.of(queue).stream
        self._clock = clock

    async def move(self, delivery: Delivery, limit: Limit, *, attempt: int) -> bool:
        """Whether it is in the dead-letter queue, and gone from its own.

        One that cannot be moved stays leased, to be met again when its lease ends.
        """
        target = QueueNames.of(limit.target)
        dead = dead_letter(
            delivery.message,
            queue=self._queue,
            attempt=attempt,
            wall_s=self._clock.time_s(),
            native=delivery.native,
        )
        largest = self._connection.max_payload
        marks = encode(dead, stream=target.stream, max_bytes=largest - _ID_BYTES)
        marks[MESSAGE_ID] = legal_id(f"{self._stream}:{delivery.broker_id}:{dead.id}")
        copy = ServerRequest(subject=target.subject(dead.group), payload=dead.body, headers=marks)
        try:
            size = size_of(marks, dead.body)
            if size > largest:
                # The server would close the connection for it, each time it is met.
                raise MessageTooLarge(limit.target, size, largest)
            await self._store(copy, limit.target)
            subject = subject_of(delivery.receipt)
            answer = await self._connection.request(ServerRequest(subject=subject, payload=TERM))
            if isinstance(answer, GatewayError):
                raise answer
        except GatewayError as error:
            _log.warning(
                vocabulary.ROUTING_FAILED,
                queue=limit.target,
                message_id=delivery.message.id,
                error=repr(error),
            )
            return False
        return True

    async def _store(self, copy: ServerRequest, target: str) -> None:
        try:
            read_answer(await self._connection.request(copy))
        except NoResponders as error:
            raise QueueNotFound(target) from error
        except ApiError as error:
            raise fault_of(error, target) from error

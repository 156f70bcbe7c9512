"""Settling: acks, naks and leases, each confirmed by the server.

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

from pump.clock import Clock
from pump.errors import ConnectionFailed, GatewayError
from pump.message import Delivery
from pump.outcome import Abandon, Ack, Action, Defer, Refusal, Settlement

from .._kit.leases import Failures, LeaseSettler
from .connection import ApiError, JetStream, nanoseconds
from .errors import CONSUMER_NOT_FOUND, STREAM_NOT_FOUND
from .hand_backs import NAK, HandBacks
from .link import Answer, NoResponders, ServerRequest
from .names import COARSE_S, CONSUMER, GRACE_S, QueueNames
from .receipts import NatsLease, Receipts, subject_of

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

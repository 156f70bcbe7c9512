"""Events: the records with which Lambda invokes a function, read as if they had been received.

Lambda receives by itself, and deletes what the function's answer does not name as failed. An
event spells a message otherwise than ReceiveMessage does: names begin with a small letter, and
binary attributes are base64. Everything after that is what a receive does.
"""

from __future__ import annotations

from binascii import Error as NotBase64, a2b_base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pump.backoff import Backoff
from pump.clock import Clock
from pump.errors import ConfigurationError
from pump.message import Delivery
from pump.outcome import Ack, Defer, Refusal, Settlement
from pump.ports import PushedRecord
from pump.subscription import Subscription

from .calls import QueueAddress, QueueCalls
from .claims import Claims
from .queue_settings import QueueOptions
from .settling import ClaimedBodies, SqsReceipts, SqsSettling, deliveries_of

_SOURCE: Final = "aws:sqs"
# A function runs 15 minutes at most, after Lambda waited up to 5 for its batch to fill. Of the 12
# hours that SQS counts from the receive, that much may be over.
_LONGEST_AGO_S: Final = 1_200


def records_of(event: object) -> list[PushedRecord]:
    """The records of an SQS event; `ConfigurationError` for anything else."""
    match event:
        case {"Records": [*raw]}:
            return [_record(each) for each in raw]
        case Mapping():
            shown: object = sorted(map(str, event))
        case _:
            shown = type(event).__name__
    raise _no_event(shown, "this is no SQS event")


def is_from(source: str, queue: str, *, owner: str | None, region: str | None) -> bool:
    """Whether an event's ARN is that of a queue, however the queue was named. What its name does
    not say, the account and the region, is the gateway's own.
    """
    actual, named = QueueAddress.parse(source), QueueAddress.parse(queue)
    return (
        actual.name == named.name
        and (named.owner or owner or actual.owner) == actual.owner
        and (named.region or region or actual.region) == actual.region
    )


class PushedMessages:
    """The messages of one queue that Lambda received."""

    def __init__(
        self,
        calls: QueueCalls,
        subscription: Subscription,
        *,
        clock: Clock,
        claims: Claims | None,
    ) -> None:
        self._queue = subscription.queue
        self._clock = clock
        self._is_fifo = QueueAddress.parse(subscription.queue).is_fifo
        self._unwrap_sns = QueueOptions.parse(subscription.options).unwrap_sns is not False
        self._receipts = SqsReceipts()
        self._bodies = (
            None
            if claims is None
            else ClaimedBodies(
                claims,
                self._receipts,
                is_fifo=self._is_fifo,
                clock=clock,
                patience_s=subscription.lease.total_seconds() / 4,
            )
        )
        self._settling = SqsSettling(
            calls,
            self._receipts,
            clock=clock,
            lease_s=_LONGEST_AGO_S,
            on_deleted=None if self._bodies is None else self._bodies.discard,
        )

    def read(self, record: PushedRecord, *, lease_s: float) -> Delivery:
        now_s = self._clock.now_s()
        ends_at_s = now_s + lease_s
        [delivery] = deliveries_of(
            [_received(record.raw)],
            queue=self._queue,
            ends_at_s=ends_at_s,
            is_fifo=self._is_fifo,
            unwrap_sns=self._unwrap_sns,
        )
        self._receipts.enter([delivery.receipt], ends_at_s=ends_at_s, now_s=now_s)
        return delivery

    async def fetch(self, delivery: Delivery) -> Delivery | Defer:
        if self._bodies is None:
            return delivery
        ready, _ = await self._bodies.fetch([delivery])
        if ready:
            return ready[0]
        return Defer(Backoff().delay_s(delivery.attempt, self._clock.chance()))

    async def settle(
        self, settlements: Sequence[Settlement], *, is_answered: bool
    ) -> Sequence[Refusal]:
        """A message whose body is in S3 is deleted here also when the answer would have Lambda do
        it: its body may go only after it, and Lambda does not tell when it has.
        """
        untold = [each for each in settlements if not (is_answered and self._is_left(each))]
        refusals = await self._settling.settle(untold) if untold else ()
        await self.aclose()
        return refusals

    async def aclose(self) -> None:
        """Waits for bodies that are being removed."""
        if self._bodies is not None:
            await self._bodies.aclose()

    def _is_left(self, settlement: Settlement) -> bool:
        """Whether Lambda settles it, by our answer."""
        is_claimed = self._bodies is not None and self._bodies.holds(settlement.delivery)
        return isinstance(settlement.action, Ack) and not is_claimed


def _record(raw: object) -> PushedRecord:
    if not isinstance(raw, Mapping):
        raise _no_event(type(raw).__name__, "a record is an object")
    source = raw.get("eventSource")
    if source != _SOURCE:
        raise _no_event(f"eventSource={source!r}", "this record is not from SQS")
    message_id = raw.get("messageId")
    if not isinstance(message_id, str) or not message_id:
        raise _no_event(f"messageId={message_id!r}", "without its id a record cannot be reported")
    defect = _defect(raw)
    arn = raw.get("eventSourceARN")
    shown = arn if isinstance(arn, str) else ""
    return PushedRecord(id=message_id, source=shown, raw=raw, defect=defect)


def _defect(raw: Mapping[str, Any]) -> str:
    for member in ("receiptHandle", "body", "eventSourceARN"):
        if not isinstance(raw.get(member), str):
            return f"{member} is no text"
    for member in ("attributes", "messageAttributes"):
        if not isinstance(raw.get(member) or {}, Mapping):
            return f"{member} is no object"
    try:
        QueueAddress.parse(raw["eventSourceARN"])
    except ConfigurationError as error:
        return f"eventSourceARN: {error}"
    return ""


def _received(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The record in ReceiveMessage's words."""
    attributes, system = raw.get("messageAttributes") or {}, raw.get("attributes") or {}
    return {
        "MessageId": raw["messageId"],
        "ReceiptHandle": raw["receiptHandle"],
        "Body": raw["body"],
        # An SDK vouches for the types of a receive; here the function's caller does.
        "Attributes": {name: text for name, text in system.items() if isinstance(text, str)},
        "MessageAttributes": {name: _attribute(each) for name, each in attributes.items()},
    }


def _attribute(raw: object) -> dict[str, object]:
    if not isinstance(raw, Mapping):
        return {}
    match raw:
        case {"stringValue": str(text)}:
            return {"DataType": raw.get("dataType"), "StringValue": text}
        case {"binaryValue": str(text)}:
            return {"DataType": raw.get("dataType"), **_binary(text)}
        case _:
            return {}


def _binary(text: str) -> dict[str, object]:
    try:
        return {"BinaryValue": a2b_base64(text, strict_mode=True)}
    except (NotBase64, ValueError):
        # Not what Lambda writes; kept as it came, as everything else is.
        return {"StringValue": text}


def _no_event(shown: object, why: str) -> ConfigurationError:
    return ConfigurationError(
        "event", shown, f"{why}; invoke this function by an event source mapping of an SQS queue"
    )

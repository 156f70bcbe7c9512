"""SendMessage and SendMessageBatch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Self

import attrs
import msgspec

from ..errors import (
    SqsError,
    batch_request_too_long,
    invalid_message_contents,
    invalid_parameter_value,
    invalid_value,
    message_too_long,
    missing_parameter,
)
from ..model import Accepted, Attribute, NewMessage
from ..settings import MAX_MESSAGE_BYTES, SqsQueueSettings
from .message_attributes import (
    TRACE_HEADER,
    attributes_digest,
    body_digest,
    digest_and_weight,
    encode_legal,
    list_values_unsupported,
    read_attributes,
    read_trace_header,
)
from .parameters import (
    Parameters,
    answer,
    failed,
    find_queue,
    number_within,
    optional_token,
    read_entries,
)

if TYPE_CHECKING:
    from ..engine import SqsEngine
    from ..protocol import Call


_SHAPE: Final = "SendMessageBatchRequestEntry"


@attrs.frozen(eq=False)
class Sending:
    """The operations that put messages into a queue; both return once they are durable."""

    engine: SqsEngine

    async def send_message(self, call: Call) -> Mapping[str, Any]:
        """One message."""
        queue = find_queue(self.engine, call)
        settings = queue.settings
        outgoing = SendTerms.of(call, settings).read(call.parameters)
        if outgoing.byte_count > settings.max_message_bytes:
            raise message_too_long(settings.max_message_bytes)
        [accepted] = await self.engine.send(queue, [outgoing.message])
        return outgoing.answer(accepted)

    async def send_message_batch(self, call: Call) -> Mapping[str, Any]:
        """Up to ten; those that are refused do not keep the others from being sent."""
        queue = find_queue(self.engine, call)
        entries = read_entries(call.parameters, _SHAPE)
        intake = SendTerms.of(call, queue.settings)
        _check_whole(entries, intake)
        ready, failures = _read_all(entries, intake)
        if not ready:
            return answer([], failures)
        accepted = await self.engine.send(queue, [outgoing.message for outgoing in ready])
        successes = [outgoing.answer(each) for outgoing, each in zip(ready, accepted, strict=True)]
        return answer(successes, failures)


def _check_whole(entries: Sequence[Parameters], intake: SendTerms) -> None:
    """What refuses a FIFO queue's batch as a whole although only one entry is wrong, as on AWS."""
    if not intake.is_fifo:
        return
    needs_id = not intake.settings.content_based_deduplication
    for number, entry in enumerate(entries, start=1):
        if not entry.get("MessageBody"):
            raise _no_body(number)
        if entry.get("MessageGroupId") is None:
            raise invalid_parameter_value("The request must contain the parameter MessageGroupId.")
        if needs_id and entry.get("MessageDeduplicationId") is None:
            raise invalid_parameter_value(NO_DEDUPLICATION)


def _read_all(
    entries: Sequence[Parameters], intake: SendTerms
) -> tuple[list[Outgoing], list[dict[str, Any]]]:
    """The messages, and each refusal as it is answered; SqsError when together too long."""
    ready: list[Outgoing] = []
    failures: list[dict[str, Any]] = []
    max_bytes = intake.settings.max_message_bytes
    total = 0
    for number, entry in enumerate(entries, start=1):
        try:
            outgoing = intake.read(entry)
        except SqsError as error:
            if error.code == "UnsupportedOperation":  # no entry's own fault, says AWS
                raise list_values_unsupported("SendMessageBatch") from None
            has_body = entry.get("MessageBody")
            failures.append(failed(entry, error if has_body else _no_body(number)))
            continue
        total += outgoing.byte_count
        if outgoing.byte_count > max_bytes:
            failures.append(failed(entry, _too_long(max_bytes)))
        else:
            outgoing.told["Id"] = entry["Id"]
            ready.append(outgoing)
    if total > MAX_MESSAGE_BYTES:
        raise batch_request_too_long(total, MAX_MESSAGE_BYTES)
    return ready, failures


def _no_body(number: int) -> SqsError:
    return missing_parameter(f"{_SHAPE}.{number}.MessageBody")


def _too_long(max_bytes: int) -> SqsError:
    # AWS words this otherwise than for a single message.
    return invalid_parameter_value(
        "One or more parameters cannot be validated. "
        f"Reason: Message must be shorter than {max_bytes} bytes."
    )


# A message to send: from a call's parameters to `NewMessage`, with every limit checked. Pure.

MAX_DELAY_S: Final = 900
_DELAY_REASON: Final = f"DelaySeconds must be >= 0 and <= {MAX_DELAY_S}."

WRONG_QUEUE_TYPE: Final = "The request include parameter that is not valid for this queue type."
NO_DEDUPLICATION: Final = (
    "The queue should either have ContentBasedDeduplication enabled or "
    "MessageDeduplicationId provided explicitly"
)


class Outgoing(msgspec.Struct):
    """A checked message, what it weighs, and what its sender will be told of it."""

    message: NewMessage
    byte_count: int
    told: dict[str, Any]
    """The digests; `answer` adds the rest."""

    def answer(self, accepted: Accepted) -> dict[str, Any]:
        """What the sender is told."""
        told = self.told
        told["MessageId"] = accepted.id
        if accepted.sequence_number is not None:
            told["SequenceNumber"] = accepted.sequence_number
        return told


class SendTerms(msgspec.Struct, frozen=True):
    """What the messages of one call have in common: the queue's terms, and the sender."""

    settings: SqsQueueSettings
    is_fifo: bool
    sender: str
    trace_header: str | None
    """The trace the request itself belongs to."""

    @classmethod
    def of(cls, call: Call, settings: SqsQueueSettings) -> Self:
        """For the messages of a call to a queue of these settings."""
        return cls(settings, settings.address.is_fifo, call.sender, call.trace_header)

    def read(self, entry: Parameters) -> Outgoing:
        """The message in a SendMessage call or a batch's entry; SqsError says what is wrong.

        Its size is only weighed: a single message and a batch are refused in different words.
        """
        body: str | None = entry.get("MessageBody")
        if not body:
            raise missing_parameter("MessageBody")
        encoded = encode_legal(body)
        if encoded is None:
            raise invalid_message_contents()
        told = {"MD5OfMessageBody": body_digest(encoded)}
        # Most messages are a body and what it is addressed by (QueueUrl or Id): nothing to check.
        if len(entry) == 2 and not self.is_fifo:
            message = NewMessage(body=body, trace_header=self.trace_header, sender=self.sender)
            return Outgoing(message, len(encoded), told)
        return self._read_rest(entry, body, encoded, told)

    def _read_rest(
        self, entry: Parameters, body: str, encoded: bytes, told: dict[str, Any]
    ) -> Outgoing:
        byte_count = len(encoded)
        attributes: dict[str, Attribute] = {}
        if given := entry.get("MessageAttributes"):
            attributes = read_attributes(given)
            told["MD5OfMessageAttributes"], weight = digest_and_weight(attributes)
            byte_count += weight
        trace_header = self.trace_header
        if given := entry.get("MessageSystemAttributes"):
            trace_header, told["MD5OfMessageSystemAttributes"] = _trace_header(given)
        group = optional_token(entry, "MessageGroupId")
        message = NewMessage(
            body=body,
            attributes=attributes,
            trace_header=trace_header,
            sender=self.sender,
            group=group,
            deduplication_id=self._deduplication_id(entry, group, encoded),
            delay_s=self._delay_s(entry),
        )
        return Outgoing(message, byte_count, told)

    def _deduplication_id(self, entry: Parameters, group: str | None, body: bytes) -> str | None:
        given = optional_token(entry, "MessageDeduplicationId")
        if not self.is_fifo:
            if given is not None:
                raise invalid_value("MessageDeduplicationId", given, WRONG_QUEUE_TYPE)
            return None
        if group is None:
            raise missing_parameter("MessageGroupId")
        if given is not None:
            return given
        if not self.settings.content_based_deduplication:
            raise invalid_parameter_value(NO_DEDUPLICATION)
        return sha256(body).hexdigest()

    def _delay_s(self, entry: Parameters) -> int | None:
        delay_s = number_within(entry, "DelaySeconds", 0, MAX_DELAY_S, reason=_DELAY_REASON)
        if delay_s is None or not self.is_fifo:
            return delay_s
        if delay_s:
            raise invalid_value("DelaySeconds", delay_s, WRONG_QUEUE_TYPE)
        return None  # zero on a FIFO queue means: the queue's own delay


def _trace_header(given: Mapping[str, Parameters]) -> tuple[str, str]:
    """The header and its digest."""
    header = read_trace_header(given)
    return header, attributes_digest({TRACE_HEADER: Attribute("String", header)})

"""SendMessage, SendMessageBatch and ReceiveMessage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Self, assert_never

import attrs
import msgspec

from ..engine import ReceiptProblem
from ..errors import (
    SqsError,
    batch_request_too_long,
    invalid_attribute_name,
    invalid_message_contents,
    invalid_parameter_value,
    invalid_value,
    message_not_available,
    message_too_long,
    missing_parameter,
    receipt_handle_expired,
    receipt_handle_is_invalid,
    receipt_handle_of_another_queue,
)
from ..model import MAX_MESSAGE_BYTES, Accepted, Attribute, NewMessage, Received, SqsQueueSettings
from .message_attributes import (
    TRACE_HEADER,
    Selector,
    attributes_digest,
    body_digest,
    digest_and_weight,
    encode_legal,
    list_values_unsupported,
    read_attributes,
    read_trace_header,
    render_attribute,
    selector,
)
from .parameters import (
    Parameters,
    answer,
    answer_each,
    failed,
    find_queue,
    number_within,
    optional_token,
    read_entries,
    text,
    texts,
)

if TYPE_CHECKING:
    from ..engine import SqsEngine
    from ..protocol import Call


# SendMessage and SendMessageBatch.

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


MAX_MESSAGES: Final = 10
MAX_WAIT_S: Final = 20
MAX_VISIBILITY_S: Final = 43_200

_VISIBILITY_REASON: Final = f"Must be >= 0 and <= {MAX_VISIBILITY_S}, if provided."
_COUNT_REASON: Final = f"Must be between 1 and {MAX_MESSAGES}, if provided."
_WAIT_REASON: Final = f"Must be >= 0 and <= {MAX_WAIT_S}, if provided."

Reader = tuple[str, Callable[[Received], str | None]]


@attrs.frozen(eq=False)
class Receiving:
    """The operation that hands messages out."""

    engine: SqsEngine

    async def receive_message(self, call: Call) -> Mapping[str, Any]:
        """Up to ten messages; waits for the first when asked to."""
        queue = find_queue(self.engine, call)
        parameters = call.parameters
        readers = _readers(_system_names(call))
        select = selector(texts(parameters, "MessageAttributeNames"))
        max_count = number_within(
            parameters, "MaxNumberOfMessages", 1, MAX_MESSAGES, reason=_COUNT_REASON
        )
        wait_s = number_within(parameters, "WaitTimeSeconds", 0, MAX_WAIT_S, reason=_WAIT_REASON)
        visibility_s = number_within(
            parameters, "VisibilityTimeout", 0, MAX_VISIBILITY_S, reason=_VISIBILITY_REASON
        )
        settings = queue.settings
        received = await self.engine.receive(
            queue,
            max_count=1 if max_count is None else max_count,
            wait_s=settings.wait_s if wait_s is None else wait_s,
            visibility_s=settings.visibility_timeout_s if visibility_s is None else visibility_s,
            attempt_id=optional_token(parameters, "ReceiveRequestAttemptId"),
        )
        if not received:
            return {}  # AWS leaves out an empty list
        return {"Messages": [_render(each, readers, select) for each in received]}


def _render(
    received: Received, readers: Sequence[Reader], select: Selector | None
) -> dict[str, Any]:
    message: dict[str, Any] = {
        "MessageId": received.id,
        "ReceiptHandle": received.receipt,
        "MD5OfBody": body_digest(received.body.encode()),
        "Body": received.body,
    }
    if readers:
        shown = {name: value for name, read in readers if (value := read(received)) is not None}
        if shown:
            message["Attributes"] = shown
    if select is not None and received.attributes:
        chosen = select(received.attributes)
        if chosen:
            message["MD5OfMessageAttributes"] = attributes_digest(chosen)
            message["MessageAttributes"] = {
                name: render_attribute(attribute) for name, attribute in chosen.items()
            }
    return message


def _system_names(call: Call) -> Sequence[str]:
    """What was asked for under either name; the query protocol prefers the older one."""
    older = texts(call.parameters, "AttributeNames")
    newer = texts(call.parameters, "MessageSystemAttributeNames")
    if older and newer:
        return (*older, *newer) if call.is_json else older
    return older or newer


def _readers(names: Sequence[str]) -> Sequence[Reader]:
    if not names:
        return ()
    for name in names:
        if name != "All" and name not in _READERS:
            raise invalid_attribute_name(name)
    if "All" in names:
        return _ALL
    return [(name, _READERS[name]) for name in dict.fromkeys(names)]


def _milliseconds(time_s: float) -> str:
    return str(int(time_s * 1000))


_READERS: Final[Mapping[str, Callable[[Received], str | None]]] = {
    "SenderId": lambda received: received.sender,
    "ApproximateFirstReceiveTimestamp": lambda received: _milliseconds(
        received.first_received_at_s
    ),
    "ApproximateReceiveCount": lambda received: str(received.receive_count),
    "SentTimestamp": lambda received: _milliseconds(received.sent_at_s),
    "SequenceNumber": lambda received: received.sequence_number,
    "MessageDeduplicationId": lambda received: received.deduplication_id,
    "MessageGroupId": lambda received: received.group,
    "AWSTraceHeader": lambda received: received.trace_header,
    "DeadLetterQueueSourceArn": lambda received: received.dead_letter_source,
}
_ALL: Final = tuple(_READERS.items())


# DeleteMessage, ChangeMessageVisibility and their batches: what is done with a receipt handle.

_RECEIPT: Final = "ReceiptHandle"
_RANGE: Final = f"VisibilityTimeout must be an integer between 0 and {MAX_VISIBILITY_S}."
_BEYOND_LIMIT: Final = (
    f"Total VisibilityTimeout for the message is beyond the limit [{MAX_VISIBILITY_S} seconds]"
)


@attrs.frozen(eq=False)
class ReceiptOperations:
    """The operations that settle or keep what was received."""

    engine: SqsEngine

    async def delete_message(self, call: Call) -> Mapping[str, Any]:
        """Deleting twice succeeds twice."""
        queue = find_queue(self.engine, call)
        receipt = text(call.parameters, _RECEIPT)
        [problem] = await self.engine.delete(queue, [receipt])
        error = _delete_error(receipt, problem)
        if error is not None:
            raise error
        return {}

    async def delete_message_batch(self, call: Call) -> Mapping[str, Any]:
        """Up to ten; each succeeds or fails on its own."""
        queue = find_queue(self.engine, call)
        entries = read_entries(call.parameters, "DeleteMessageBatchRequestEntry")
        receipts = [entry.get("ReceiptHandle", "") for entry in entries]
        # An entry without a receipt is refused by the engine, and told apart only then.
        problems = await self.engine.delete(queue, receipts)
        if not any(problems):
            return {"Successful": [{"Id": entry["Id"]} for entry in entries]}
        refusals = {}
        for entry, receipt, problem in zip(entries, receipts, problems, strict=True):
            error = _delete_error(receipt, problem) if receipt else missing_parameter(_RECEIPT)
            if error is not None:
                refusals[entry["Id"]] = error
        return answer_each(entries, refusals)

    async def change_message_visibility(self, call: Call) -> Mapping[str, Any]:
        """From now on, not from when it was received."""
        queue = find_queue(self.engine, call)
        receipt = text(call.parameters, _RECEIPT)
        timeout_s = _timeout_s(call.parameters)
        [problem] = await self.engine.change_visibility(queue, [(receipt, timeout_s)])
        error = _change_error(receipt, problem, timeout_s)
        if error is not None:
            raise error
        return {}

    async def change_message_visibility_batch(self, call: Call) -> Mapping[str, Any]:
        """Up to ten; each succeeds or fails on its own."""
        queue = find_queue(self.engine, call)
        entries = read_entries(call.parameters, "ChangeMessageVisibilityBatchRequestEntry")
        changes: dict[str, tuple[str, int]] = {}
        refusals: dict[str, SqsError] = {}
        for entry in entries:
            try:
                changes[entry["Id"]] = (text(entry, _RECEIPT), _timeout_s(entry))
            except SqsError as error:
                refusals[entry["Id"]] = error
        problems = await self.engine.change_visibility(queue, list(changes.values()))
        for (entry_id, change), problem in zip(changes.items(), problems, strict=True):
            refusal = _change_error(change[0], problem, change[1])
            if refusal is not None:
                refusals[entry_id] = refusal
        return answer_each(entries, refusals)


def _delete_error(receipt: str, problem: ReceiptProblem | None) -> SqsError | None:
    match problem:
        case ReceiptProblem.MALFORMED:
            return receipt_handle_is_invalid(receipt)
        case ReceiptProblem.OTHER_QUEUE:
            return receipt_handle_of_another_queue(receipt)
        case ReceiptProblem.EXPIRED:
            return receipt_handle_expired(receipt)
        case _:  # what is gone already is deleted
            return None


def _change_error(receipt: str, problem: ReceiptProblem | None, timeout_s: int) -> SqsError | None:
    match problem:
        case None:
            return None
        case ReceiptProblem.MALFORMED:
            return receipt_handle_is_invalid(receipt)
        case ReceiptProblem.OTHER_QUEUE:
            return receipt_handle_of_another_queue(receipt)
        case ReceiptProblem.EXPIRED:
            return receipt_handle_expired(receipt)
        case ReceiptProblem.GONE | ReceiptProblem.NOT_IN_FLIGHT:
            # The documentation promises MessageNotInflight for the latter; AWS answers this.
            return message_not_available(receipt)
        case ReceiptProblem.BEYOND_LIMIT:
            return invalid_value("VisibilityTimeout", timeout_s, _BEYOND_LIMIT)
        case _:
            assert_never(problem)


def _timeout_s(parameters: Parameters) -> int:
    timeout_s = number_within(parameters, "VisibilityTimeout", 0, MAX_VISIBILITY_S, reason=_RANGE)
    if timeout_s is None:
        raise missing_parameter("VisibilityTimeout")
    return timeout_s

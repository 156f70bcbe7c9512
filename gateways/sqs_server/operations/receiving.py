"""ReceiveMessage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, assert_never

import attrs

from ..engine import ReceiptProblem
from ..errors import (
    SqsError,
    invalid_attribute_name,
    invalid_value,
    message_not_available,
    missing_parameter,
    receipt_handle_expired,
    receipt_handle_is_invalid,
    receipt_handle_of_another_queue,
)
from ..model import Received
from .message_attributes import Selector, attributes_digest, body_digest, render_attribute, selector
from .parameters import (
    Parameters,
    answer_each,
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

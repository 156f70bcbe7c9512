"""ReceiveMessage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from ..errors import invalid_attribute_name
from ..model import Received
from .digests import attributes_digest, body_digest
from .lookup import find_queue
from .message_attributes import Selector, render_attribute, selector
from .parameters import number_within, optional_token, texts

if TYPE_CHECKING:
    from ..engine import Engine
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

    engine: Engine

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

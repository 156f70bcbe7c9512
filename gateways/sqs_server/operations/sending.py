"""SendMessage and SendMessageBatch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from ..errors import (
    SqsError,
    batch_request_too_long,
    invalid_parameter_value,
    message_too_long,
    missing_parameter,
)
from ..settings import MAX_MESSAGE_BYTES
from .batches import answer, failed, read_entries
from .lookup import find_queue
from .message_attributes import list_values_unsupported
from .outgoing import NO_DEDUPLICATION, Intake, Outgoing
from .parameters import Parameters

if TYPE_CHECKING:
    from ..engine import Engine
    from ..protocol import Call

_SHAPE: Final = "SendMessageBatchRequestEntry"


@attrs.frozen(eq=False)
class Sending:
    """The operations that put messages into a queue; both return once they are durable."""

    engine: Engine

    async def send_message(self, call: Call) -> Mapping[str, Any]:
        """One message."""
        queue = find_queue(self.engine, call)
        settings = queue.settings
        outgoing = Intake.of(call, settings).read(call.parameters)
        if outgoing.byte_count > settings.max_message_bytes:
            raise message_too_long(settings.max_message_bytes)
        [accepted] = await self.engine.send(queue, [outgoing.message])
        return outgoing.answer(accepted)

    async def send_message_batch(self, call: Call) -> Mapping[str, Any]:
        """Up to ten; those that are refused do not keep the others from being sent."""
        queue = find_queue(self.engine, call)
        entries = read_entries(call.parameters, _SHAPE)
        intake = Intake.of(call, queue.settings)
        _check_whole(entries, intake)
        ready, failures = _read_all(entries, intake)
        if not ready:
            return answer([], failures)
        accepted = await self.engine.send(queue, [outgoing.message for outgoing in ready])
        successes = [outgoing.answer(each) for outgoing, each in zip(ready, accepted, strict=True)]
        return answer(successes, failures)


def _check_whole(entries: Sequence[Parameters], intake: Intake) -> None:
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
    entries: Sequence[Parameters], intake: Intake
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

"""DeleteMessage, ChangeMessageVisibility and their batches: what is done with a receipt handle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, assert_never

import attrs

from ..engine import ReceiptProblem
from ..errors import (
    SqsError,
    invalid_value,
    message_not_available,
    missing_parameter,
    receipt_handle_expired,
    receipt_handle_is_invalid,
    receipt_handle_of_another_queue,
)
from .batches import answer_each, read_entries
from .lookup import find_queue
from .parameters import Parameters, number_within, text
from .receiving import MAX_VISIBILITY_S

if TYPE_CHECKING:
    from ..engine import Engine
    from ..protocol import Call

_RECEIPT: Final = "ReceiptHandle"
_RANGE: Final = f"VisibilityTimeout must be an integer between 0 and {MAX_VISIBILITY_S}."
_BEYOND_LIMIT: Final = (
    f"Total VisibilityTimeout for the message is beyond the limit [{MAX_VISIBILITY_S} seconds]"
)


@attrs.frozen(eq=False)
class Receipts:
    """The operations that settle or keep what was received."""

    engine: Engine

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

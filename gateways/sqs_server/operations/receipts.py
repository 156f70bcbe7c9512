"""DeleteMessage, ChangeMessageVisibility and their batches: what is done with a receipt handle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
)
from .batches import answer, failed, read_entries
from .lookup import find_queue
from .parameters import Parameters, number_within, text
from .receiving import MAX_VISIBILITY_S, VISIBILITY_REASON

if TYPE_CHECKING:
    from ..engine import Engine
    from ..protocol import Call

_DELETE_SHAPE: Final = "DeleteMessageBatchRequestEntry"
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
        receipt = text(call.parameters, "ReceiptHandle")
        [problem] = await self.engine.delete(queue, [receipt])
        error = _delete_error(receipt, problem)
        if error is not None:
            raise error
        return {}

    async def delete_message_batch(self, call: Call) -> Mapping[str, Any]:
        """Up to ten; each succeeds or fails on its own."""
        queue = find_queue(self.engine, call)
        entries = read_entries(call.parameters, _DELETE_SHAPE)
        receipts = [entry.get("ReceiptHandle", "") for entry in entries]
        if not all(receipts):
            raise missing_parameter(f"{_DELETE_SHAPE}.ReceiptHandle")
        problems = await self.engine.delete(queue, receipts)
        if not any(problems):
            return {"Successful": [{"Id": entry["Id"]} for entry in entries]}
        return _delete_answer(entries, receipts, problems)

    async def change_message_visibility(self, call: Call) -> Mapping[str, Any]:
        """From now on, not from when it was received."""
        queue = find_queue(self.engine, call)
        receipt = text(call.parameters, "ReceiptHandle")
        timeout_s = _timeout_s(call.parameters)
        [problem] = await self.engine.change_visibility(queue, [(receipt, timeout_s)])
        error = _change_error(receipt, problem, timeout_s)
        if error is not None:
            raise error
        return {}

    async def change_message_visibility_batch(self, call: Call) -> Mapping[str, Any]:
        """Up to ten; each succeeds or fails on its own."""
        queue = find_queue(self.engine, call)
        shape = "ChangeMessageVisibilityBatchRequestEntry"
        entries = read_entries(call.parameters, shape)
        changes: list[tuple[Parameters, tuple[str, int]]] = []
        failures = []
        for entry in entries:
            receipt = _receipt(entry, shape)
            try:
                changes.append((entry, (receipt, _timeout_s(entry))))
            except SqsError as error:
                failures.append(failed(entry, error))
        problems = await self.engine.change_visibility(queue, [change for _, change in changes])
        successes = []
        for (entry, (receipt, timeout_s)), problem in zip(changes, problems, strict=True):
            refusal = _change_error(receipt, problem, timeout_s)
            if refusal is None:
                successes.append({"Id": entry["Id"]})
            else:
                failures.append(failed(entry, refusal))
        return answer(successes, failures)


def _delete_answer(
    entries: Sequence[Parameters],
    receipts: Sequence[str],
    problems: Sequence[ReceiptProblem | None],
) -> dict[str, Any]:
    successes = []
    failures = []
    for entry, receipt, problem in zip(entries, receipts, problems, strict=True):
        error = _delete_error(receipt, problem)
        if error is None:
            successes.append({"Id": entry["Id"]})
        else:
            failures.append(failed(entry, error))
    return answer(successes, failures)


def _delete_error(receipt: str, problem: ReceiptProblem | None) -> SqsError | None:
    match problem:
        case ReceiptProblem.MALFORMED:
            return receipt_handle_is_invalid(receipt)
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
    timeout_s = number_within(
        parameters, "VisibilityTimeout", 0, MAX_VISIBILITY_S, reason=VISIBILITY_REASON
    )
    if timeout_s is None:
        raise missing_parameter("VisibilityTimeout")
    return timeout_s


def _receipt(entry: Parameters, shape: str) -> str:
    receipt: str | None = entry.get("ReceiptHandle")
    if not receipt:
        raise missing_parameter(f"{shape}.ReceiptHandle")
    return receipt

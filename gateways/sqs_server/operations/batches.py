"""What the batch operations share: checks of the whole, and the form of the answer. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..errors import (
    SqsError,
    batch_entry_ids_not_distinct,
    empty_batch_request,
    invalid_batch_entry_id,
    missing_parameter,
    too_many_entries_in_batch_request,
)
from .parameters import Parameters

MAX_ENTRIES: Final = 10
_MAX_ID_LENGTH: Final = 80
_ENTRY_ID: Final = re.compile(r"[A-Za-z0-9_-]+")


def read_entries(parameters: Parameters, shape: str) -> Sequence[Parameters]:
    """A batch's entries, one to ten, with ids that differ; SqsError refuses the whole call."""
    entries: Sequence[Parameters] = parameters.get("Entries") or ()
    if not entries:
        raise empty_batch_request(shape)
    if len(entries) > MAX_ENTRIES:
        raise too_many_entries_in_batch_request(len(entries), MAX_ENTRIES)
    ids: list[str] = [entry.get("Id", "") for entry in entries]
    # Looked at together, and one by one only when it matters which is wrong first.
    if len(set(ids)) < len(ids) or not (all(ids) and _are_legal("".join(ids), max(map(len, ids)))):
        _check_each(entries, shape)
    return entries


def _check_each(entries: Sequence[Parameters], shape: str) -> None:
    seen: set[str] = set()
    for number, entry in enumerate(entries, start=1):
        entry_id: str | None = entry.get("Id")
        if entry_id is None:
            raise missing_parameter(f"{shape}.{number}.Id")
        if not _are_legal(entry_id, len(entry_id)):
            raise invalid_batch_entry_id()
        if entry_id in seen:
            raise batch_entry_ids_not_distinct(entry_id)
        seen.add(entry_id)


def _are_legal(characters: str, longest: int) -> bool:
    return longest <= _MAX_ID_LENGTH and _ENTRY_ID.fullmatch(characters) is not None


def failed(entry: Parameters, error: SqsError) -> dict[str, Any]:
    """One entry's refusal, as the answer lists it."""
    return {
        "Id": entry["Id"],
        "SenderFault": error.is_senders_fault,
        "Code": error.query_code,
        "Message": error.message,
    }


def answer_each(entries: Sequence[Parameters], refusals: Mapping[str, SqsError]) -> dict[str, Any]:
    """The answer to entries of which those in `refusals`, by their ids, failed."""
    return answer(
        [{"Id": entry["Id"]} for entry in entries if entry["Id"] not in refusals],
        [failed(entry, refusals[entry["Id"]]) for entry in entries if entry["Id"] in refusals],
    )


def answer(
    successful: Sequence[dict[str, Any]], failures: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """AWS leaves out an empty list."""
    result: dict[str, Any] = {}
    if successful:
        result["Successful"] = successful
    if failures:
        result["Failed"] = failures
    return result

"""Reading a call's parameters: there or not, and within their limits. Pure.

Their types are right: the protocol checked them where the request came in.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import attrs

from ..errors import (
    SqsError,
    batch_entry_ids_not_distinct,
    empty_batch_request,
    invalid_batch_entry_id,
    invalid_parameter_value,
    invalid_value,
    missing_parameter,
    queue_does_not_exist,
    resource_not_found,
    too_many_entries_in_batch_request,
)
from ..model import QueueId, SqsQueueSettings

if TYPE_CHECKING:
    from ..engine import Queue, SqsEngine
    from ..protocol import Call


Parameters = Mapping[str, Any]

_TOKEN: Final = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]{1,128}")


def text(parameters: Parameters, name: str) -> str:
    """A string that must be there and not be empty."""
    value: str | None = parameters.get(name)
    if not value:
        raise missing_parameter(name)
    return value


def optional_text(parameters: Parameters, name: str) -> str | None:
    """A string, or None when it was not given."""
    value: str | None = parameters.get(name)
    return value


def number_within(
    parameters: Parameters, name: str, low: int, high: int, *, reason: str, is_quoted: bool = True
) -> int | None:
    """A number between two others, or None when not given; else AWS's refusal with `reason`.

    The refusals of AWS's younger operations do not quote the number: not `is_quoted`.
    """
    value: int | None = parameters.get(name)
    if value is not None and not low <= value <= high:
        if is_quoted:
            raise invalid_value(name, value, reason)
        raise invalid_parameter_value(f"Value for parameter {name} is invalid. Reason: {reason}")
    return value


def texts(parameters: Parameters, name: str) -> Sequence[str]:
    """A list of strings; empty when it was not given."""
    return parameters.get(name) or ()


def text_map(parameters: Parameters, name: str) -> Mapping[str, str]:
    """A map from strings to strings; empty when it was not given."""
    return parameters.get(name) or {}


def optional_token(parameters: Parameters, name: str) -> str | None:
    """A group, deduplication or attempt id: letters, digits and punctuation, at most 128."""
    value: str | None = parameters.get(name)
    if value is not None and _TOKEN.fullmatch(value) is None:
        raise invalid_value(
            name,
            value,
            f"{name} can only include alphanumeric and punctuation characters. 1 to 128 in length.",
        )
    return value


# Which queue a call means: a URL of any host, a path or a bare name; or an ARN.


def find_queue(engine: SqsEngine, call: Call) -> Queue:
    """The queue that QueueUrl names; SqsError when there is none.

    The account in the URL decides whose queue it is. The region is the request's, or where the
    request's has no such queue the only region that does: a URL of ours does not name one.
    """
    address = address_in(text(call.parameters, "QueueUrl"), call)
    return locate(engine, address)


def locate(engine: SqsEngine, address: QueueId) -> Queue:
    """The queue at an address, or in the only other region that has it; SqsError if none."""
    queue = engine.find(address) or _find_elsewhere(engine, address)
    if queue is None:
        raise queue_does_not_exist()
    return queue


def address_in(url: str, call: Call) -> QueueId:
    """The address a queue URL gives, whatever its host: its last two parts are account and name."""
    return _address_in(url, call.account, call.region)


@lru_cache(maxsize=1_024)  # clients name the same few queues in every call
def _address_in(url: str, account: str, region: str) -> QueueId:
    head, _, name = url.rpartition("/")
    owner = head.rpartition("/")[2]
    is_account = len(owner) == 12 and owner.isdecimal()
    return QueueId(owner if is_account else account, region, name)


def find_by_arn(engine: SqsEngine, parameters: Parameters, name: str) -> Queue:
    """The queue whose ARN is given as parameter `name`; SqsError when there is no such queue."""
    arn: str | None = parameters.get(name)
    if arn is None:
        raise missing_parameter(name)
    address = QueueId.from_arn(arn)
    if address is None:
        raise invalid_parameter_value(
            f"You must use this format to specify the {name}: "
            "arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
        )
    queue = engine.find(address)
    if queue is None:
        raise resource_not_found(
            f"The resource that you specified for the {name} parameter doesn't exist."
        )
    return queue


def url_of(address: QueueId, call: Call) -> str:
    """The URL by which this caller reaches the queue."""
    return f"{call.base_url}/{address.account}/{address.name}"


def _find_elsewhere(engine: SqsEngine, wanted: QueueId) -> Queue | None:
    found = [
        queue
        for address, queue in engine.queues.items()
        if (address.account, address.name) == (wanted.account, wanted.name)
    ]
    return found[0] if len(found) == 1 else None


# Changing a queue's settings, one change after the other.


@attrs.frozen(eq=False)
class Changes:
    """Where settings are changed.

    A change is made from what the queue is set to now, and takes effect once it is on disk; so
    that two at the same time (a tag and a permission) do not undo each other, they queue up here.
    """

    engine: SqsEngine
    lock: asyncio.Lock = attrs.field(factory=asyncio.Lock, init=False)

    async def change(
        self, call: Call, decide: Callable[[SqsQueueSettings], SqsQueueSettings]
    ) -> None:
        """Set the queue that the call names to what `decide` makes of its settings."""
        async with self.lock:
            queue = find_queue(self.engine, call)
            await self.engine.configure(queue, decide(queue.settings))


# What the batch operations share: checks of the whole, and the form of the answer. Pure.

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

"""The operations on queues themselves: making, finding, setting, emptying and deleting them."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from pump.clock import Clock

from ..errors import (
    SqsError,
    invalid_attribute_name,
    invalid_parameter_value,
    missing_parameter,
    purge_queue_in_progress,
    queue_deleted_recently,
    queue_name_exists,
)
from ..model import FIFO_SUFFIX, QueueId, SqsQueueSettings
from .parameters import (
    Changes,
    Parameters,
    find_queue,
    locate,
    number_within,
    optional_text,
    text_map,
    texts,
    url_of,
)
from .queue_attributes import (
    differing_attribute,
    parse_attributes,
    redrive_refusal,
    render_attributes,
)

if TYPE_CHECKING:
    from ..engine import SqsEngine
    from ..protocol import Call


PURGE_INTERVAL_S: Final = 60

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")
_FIFO_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,75}\.fifo")


@attrs.frozen(eq=False)
class QueueOperations:
    """Operations on queues. `is_strict` adds AWS's pauses of 60 s after a deletion and a purge."""

    engine: SqsEngine
    changes: Changes
    clock: Clock
    is_strict: bool
    _purged_at_s: dict[QueueId, float] = attrs.field(factory=dict, init=False)

    async def create_queue(self, call: Call) -> Mapping[str, Any]:
        """A new queue, or the one of that name if it has the attributes that were given."""
        raw = text_map(call.parameters, "Attributes")
        address = QueueId(call.account, call.region, _queue_name(call.parameters, raw))
        queue = self.engine.find(address)
        if queue is None:
            queue = await self.engine.create(self._new_settings(address, raw, call.parameters))
        # Compared after it was made, too: another request may have been making it.
        after = parse_attributes(address, raw, before=queue.settings)
        differing = differing_attribute(queue.settings, after, list(raw))
        if differing is not None:
            raise queue_name_exists(differing)
        return {"QueueUrl": url_of(address, call)}

    async def delete_queue(self, call: Call) -> Mapping[str, Any]:
        """The queue and everything in it."""
        queue = find_queue(self.engine, call)
        self._purged_at_s.pop(queue.settings.address, None)
        await self.engine.delete_queue(queue)
        return {}

    async def get_queue_url(self, call: Call) -> Mapping[str, Any]:
        """Where to reach a queue by its name."""
        name = _given_name(call.parameters)
        if not name:
            raise _no_name()
        owner = optional_text(call.parameters, "QueueOwnerAWSAccountId")
        address = QueueId(owner or call.account, call.region, name)
        return {"QueueUrl": url_of(locate(self.engine, address).settings.address, call)}

    async def list_queues(self, call: Call) -> Mapping[str, Any]:
        """The caller's queues in the caller's region, by name."""
        prefix = optional_text(call.parameters, "QueueNamePrefix") or ""
        names = sorted(
            address.name
            for address in self.engine.queues
            if (address.account, address.region) == (call.account, call.region)
            and address.name.startswith(prefix)
        )
        shown, token = page(names, call.parameters)
        result: dict[str, Any] = {}
        if shown:
            result["QueueUrls"] = [
                url_of(QueueId(call.account, call.region, name), call) for name in shown
            ]
        if token is not None:
            result["NextToken"] = token
        return result

    async def list_dead_letter_source_queues(self, call: Call) -> Mapping[str, Any]:
        """The queues whose redrive policy names this one."""
        target = find_queue(self.engine, call).settings.address
        names = sorted(
            address.name
            for address, queue in self.engine.queues.items()
            if queue.settings.redrive is not None and queue.settings.redrive.target == target
        )
        shown, token = page(names, call.parameters)
        result: dict[str, Any] = {
            "queueUrls": [
                url_of(QueueId(target.account, target.region, name), call) for name in shown
            ]
        }
        if token is not None:
            result["NextToken"] = token
        return result

    async def get_queue_attributes(self, call: Call) -> Mapping[str, Any]:
        """The attributes asked for that the queue has."""
        queue = find_queue(self.engine, call)
        names = texts(call.parameters, "AttributeNames")
        if call.parameters.get("AttributeNames") == [] and not call.is_json:
            # A query can only write an empty list as an empty name, and AWS has no such attribute.
            raise invalid_attribute_name("")
        shown = render_attributes(queue.settings, names, self.engine.counts(queue))
        return {"Attributes": shown} if shown else {}

    async def set_queue_attributes(self, call: Call) -> Mapping[str, Any]:
        """Those given; the others stay as they are."""
        raw = text_map(call.parameters, "Attributes")

        def change(settings: SqsQueueSettings) -> SqsQueueSettings:
            if not raw:
                raise missing_parameter("Attribute.Name")
            after = parse_attributes(settings.address, raw, before=settings)
            self._check_dead_letter_queue(after, raw)
            return attrs.evolve(after, modified_at_s=int(self.clock.time_s()))

        await self.changes.change(call, change)
        return {}

    async def purge_queue(self, call: Call) -> Mapping[str, Any]:
        """Every message, in flight or not."""
        queue = find_queue(self.engine, call)
        address = queue.settings.address
        now_s = self.clock.now_s()
        if self.is_strict:
            last_s = self._purged_at_s.get(address)
            if last_s is not None and now_s - last_s < PURGE_INTERVAL_S:
                raise purge_queue_in_progress(address.name)
        await self.engine.purge(queue)
        self._purged_at_s[address] = now_s
        return {}

    def _new_settings(
        self, address: QueueId, raw: Mapping[str, str], parameters: Parameters
    ) -> SqsQueueSettings:
        if self.is_strict and self.engine.was_deleted_recently(address):
            raise queue_deleted_recently()
        settings = parse_attributes(address, raw)
        self._check_dead_letter_queue(settings, raw)
        tags = dict(_given_tags(parameters))
        check_tags(address.name, tags)
        now_s = int(self.clock.time_s())
        return attrs.evolve(settings, created_at_s=now_s, modified_at_s=now_s, tags=tags)

    def _check_dead_letter_queue(self, settings: SqsQueueSettings, raw: Mapping[str, str]) -> None:
        if settings.redrive is None or "RedrivePolicy" not in raw:
            return
        target = self.engine.find(settings.redrive.target)
        if target is None and settings.redrive.target != settings.address:
            raise redrive_refusal(raw["RedrivePolicy"], "Dead letter target does not exist.")
        allow = None if target is None else target.settings.redrive_allow
        if allow is not None and not allow.allows(settings.address):
            raise redrive_refusal(
                raw["RedrivePolicy"],
                "The redrive allow policy of the dead-letter queue does not permit this source.",
            )


def _queue_name(parameters: Parameters, raw: Mapping[str, str]) -> str:
    """A name that fits the kind of queue; FIFO is asked for by attribute, and needs the suffix."""
    name = _given_name(parameters)
    if not name:
        raise invalid_parameter_value("Queue name cannot be empty")
    if raw.get("FifoQueue", "").lower() == "true":
        if _FIFO_NAME.fullmatch(name) is None:
            raise invalid_parameter_value(
                "The name of a FIFO queue can only include alphanumeric characters, hyphens, or "
                f"underscores, must end with {FIFO_SUFFIX} suffix and be 1 to 80 in length."
            )
    elif _NAME.fullmatch(name) is None:
        raise invalid_parameter_value(
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
        )
    return name


def _given_name(parameters: Parameters) -> str:
    name: str | None = parameters.get("QueueName")
    if name is None:
        raise _no_name()
    return name


def _no_name() -> SqsError:
    return invalid_parameter_value(
        "Value for parameter QueueName is invalid. Reason: Must specify a queue name."
    )


def _given_tags(parameters: Parameters) -> Mapping[str, str]:
    # The API's JSON model spells this one in lower case, its documentation does not.
    return text_map(parameters, "tags") or text_map(parameters, "Tags")


# Lists in pages. Pure: a token says after which name the next page starts.

MAX_RESULTS: Final = 1_000


def page(names: Sequence[str], parameters: Parameters) -> tuple[Sequence[str], str | None]:
    """The page that NextToken and MaxResults ask for of sorted names, and the token of the next.

    A token is given only to callers that set MaxResults, as AWS does.
    """
    limit = number_within(
        parameters,
        "MaxResults",
        1,
        MAX_RESULTS,
        reason=f"MaxResults must be an integer between 1 and {MAX_RESULTS}.",
        is_quoted=False,
    )
    token = optional_text(parameters, "NextToken")
    if token:
        after = _decode(token)
        names = [name for name in names if name > after]
    shown = names[: limit or MAX_RESULTS]
    has_more = limit is not None and len(names) > len(shown)
    return shown, _encode(shown[-1]) if has_more else None


def _encode(name: str) -> str:
    return base64.b64encode(name.encode()).decode()


def _decode(token: str) -> str:
    try:
        return base64.b64decode(token, validate=True).decode()
    except ValueError:
        raise invalid_parameter_value("Invalid or expired next token.") from None


# TagQueue, UntagQueue and ListQueueTags.

MAX_TAGS: Final = 50
_MAX_KEY: Final = 128
_MAX_VALUE: Final = 256
_KEY_RULE: Final = f"Tag keys must be between 1 and {_MAX_KEY} characters in length."


@attrs.frozen(eq=False)
class Tags:
    """Operations on a queue's tags."""

    engine: SqsEngine
    changes: Changes

    async def tag_queue(self, call: Call) -> Mapping[str, Any]:
        """Adds tags; a tag that is there gets the new value."""
        added = text_map(call.parameters, "Tags")

        def add(settings: SqsQueueSettings) -> SqsQueueSettings:
            if not added:
                raise missing_parameter("Tags")
            tags = {**settings.tags, **added}
            check_tags(settings.address.name, tags)
            return attrs.evolve(settings, tags=tags)

        await self.changes.change(call, add)
        return {}

    async def untag_queue(self, call: Call) -> Mapping[str, Any]:
        """Takes tags away; one that is not there is no error."""
        keys = texts(call.parameters, "TagKeys")

        def remove(settings: SqsQueueSettings) -> SqsQueueSettings:
            if not keys:
                raise invalid_parameter_value(_KEY_RULE)
            tags = {key: value for key, value in settings.tags.items() if key not in keys}
            return attrs.evolve(settings, tags=tags)

        await self.changes.change(call, remove)
        return {}

    async def list_queue_tags(self, call: Call) -> Mapping[str, Any]:
        """All tags."""
        tags = find_queue(self.engine, call).settings.tags
        return {"Tags": dict(tags)} if tags else {}


def check_tags(queue_name: str, tags: Mapping[str, str]) -> None:
    """SqsError when a queue cannot have these tags."""
    if len(tags) > MAX_TAGS:
        raise invalid_parameter_value(f"Too many tags added for queue {queue_name}.")
    for key, value in tags.items():
        if not 1 <= len(key) <= _MAX_KEY:
            raise invalid_parameter_value(_KEY_RULE)
        if len(value) > _MAX_VALUE:
            raise invalid_parameter_value(
                f"Tag values must be between 0 and {_MAX_VALUE} characters in length."
            )

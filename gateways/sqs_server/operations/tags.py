"""TagQueue, UntagQueue and ListQueueTags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from ..errors import invalid_parameter_value, missing_parameter
from ..settings import QueueSettings
from .changes import Changes
from .lookup import find_queue
from .parameters import text_map, texts

if TYPE_CHECKING:
    from ..engine import Engine
    from ..protocol import Call

MAX_TAGS: Final = 50
_MAX_KEY: Final = 128
_MAX_VALUE: Final = 256
_KEY_RULE: Final = f"Tag keys must be between 1 and {_MAX_KEY} characters in length."


@attrs.frozen(eq=False)
class Tags:
    """Operations on a queue's tags."""

    engine: Engine
    changes: Changes

    async def tag_queue(self, call: Call) -> Mapping[str, Any]:
        """Adds tags; a tag that is there gets the new value."""
        added = text_map(call.parameters, "Tags")

        def add(settings: QueueSettings) -> QueueSettings:
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

        def remove(settings: QueueSettings) -> QueueSettings:
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

"""The consumers of sessions: one for a group at a time, which the server itself sees to.

In a work-queue stream no two consumers may see the same subject. So a consumer that is left over
has to be deleted before its successor can be made; from then on nothing that it gave out can be
acked any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .calls import ApiError, JetStream, fault_of, nanoseconds
from .errors import CONSUMER_NOT_FOUND, CONSUMER_NOT_UNIQUE
from .names import QueueNames

PREFIX: Final = "session-"
_LEASE_S: Final = 7 * 86_400.0
"""No message of a session is delivered again by the server: the session sees to that."""
_UNUSED_S: Final = 86_400.0
"""When the server removes a consumer that nobody pulls from."""
_MAX_TRIES: Final = 5


class SessionConsumers:
    """Those of one queue, each named by the owner of its session's lock."""

    def __init__(self, api: JetStream, names: QueueNames) -> None:
        self._api = api
        self._names = names

    @staticmethod
    def name(owner: str) -> str:
        """What an owner's consumer is called."""
        return f"{PREFIX}{owner}"

    async def make(
        self, owner: str, token: str, *, before: str, is_over: Callable[[], bool]
    ) -> bool:
        """Make the consumer of a lock that was just taken; `before` held it until then. False
        when the lock is over meanwhile: what is there now may belong to its next holder.
        """
        if before:
            await self.delete(before)
        for attempt in range(_MAX_TRIES):
            try:
                await self._create(owner, token)
            except ApiError as error:
                if error.error_code != CONSUMER_NOT_UNIQUE or attempt == _MAX_TRIES - 1:
                    raise fault_of(error, self._names.queue) from error
                if is_over():
                    return False
                # Of a lock whose record is gone, or made at this moment by one who lost it.
                await self._delete_others(token)
            else:
                break
        return True

    async def delete(self, owner: str) -> None:
        """After this, nothing that it gave out can be acked. Idempotent."""
        await self._delete(self.name(owner))

    async def _create(self, owner: str, token: str) -> None:
        name, stream = self.name(owner), self._names.stream
        config = {
            "name": name,
            "ack_policy": "explicit",
            "ack_wait": nanoseconds(_LEASE_S),
            "max_deliver": -1,
            "max_ack_pending": -1,
            "inactive_threshold": nanoseconds(_UNUSED_S),
            "filter_subject": f"{stream}.g.{token}",
            "durable_name": name,
        }
        body = {"stream_name": stream, "action": "create", "config": config}
        await self._api.ask(f"CONSUMER.CREATE.{stream}.{name}", body)

    async def _delete_others(self, token: str) -> None:
        stream = self._names.stream
        subject, offset = f"{stream}.g.{token}", 0
        while True:
            page = await self._api.call(
                f"CONSUMER.LIST.{stream}", {"offset": offset}, queue=self._names.queue
            )
            found = page.get("consumers") or []
            for each in found:
                config = each["config"]
                if config.get("filter_subject") == subject and each["name"].startswith(PREFIX):
                    await self._delete(each["name"])
            offset += len(found)
            if not found or offset >= int(page.get("total") or 0):
                return

    async def _delete(self, name: str) -> None:
        try:
            await self._api.ask(f"CONSUMER.DELETE.{self._names.stream}.{name}")
        except ApiError as error:
            if error.error_code != CONSUMER_NOT_FOUND:
                raise fault_of(error, self._names.queue) from error

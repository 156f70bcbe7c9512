"""Session locks: the bucket of records at the server, replaced by compare and set."""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from pump.clock import Clock

from .calls import ApiError, JetStream, fault_of, nanoseconds, read_answer
from .errors import MESSAGE_NOT_FOUND, STREAM_EXISTS, STREAM_NOT_FOUND, WRONG_LAST_SEQUENCE
from .exchange import Answer, NoResponders, Request
from .queue_facts import time_s
from .session_record import SessionRecord, StoredRecord, pack, unpack

BUCKET: Final = "pumphouse-sessions"
STREAM: Final = f"KV_{BUCKET}"
MAX_AGE_S: Final = 7 * 86_400.0
"""What nobody touched for a week is forgotten."""
_EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
_OPERATION: Final = "KV-Operation"


class SessionLocks:
    """The records of all queues of an account."""

    def __init__(self, api: JetStream, clock: Clock) -> None:
        self._api = api
        self._clock = clock

    @staticmethod
    def subject(stream: str, token: str) -> str:
        """Where the record of a group is kept; `*` for those of all groups of a queue."""
        return f"$KV.{BUCKET}.{stream}.{token}"

    async def ensure(self, queue: str) -> float:
        """Have the bucket, and return by how much the server's clock is ahead of `Clock.now_s`."""
        try:
            info = await self._api.ask(f"STREAM.INFO.{STREAM}")
        except ApiError as error:
            if error.error_code != STREAM_NOT_FOUND:
                raise fault_of(error, queue) from error
            await self._create(queue)
            info = await self._api.call(f"STREAM.INFO.{STREAM}", queue=queue)
        now_s = time_s(info.get("ts"))
        return (self._clock.time_s() if now_s is None else now_s) - self._clock.now_s()

    async def read(self, stream: str, token: str) -> StoredRecord:
        """The record of a group, an empty one when there is none."""
        [found] = await self.read_all(stream, [token])
        return found

    async def read_all(self, stream: str, tokens: Sequence[str]) -> list[StoredRecord]:
        """The records of several groups, all asked for at once."""
        subject = self._api.subject(f"STREAM.MSG.GET.{STREAM}")
        answers = await self._api.connection.request_all(
            [
                Request(subject=subject, payload=_asking_for(self.subject(stream, token)))
                for token in tokens
            ]
        )
        return [_record_in(answer, stream) for answer in answers]

    async def replace(
        self, stream: str, token: str, record: SessionRecord, *, revision: int
    ) -> int | None:
        """The revision of the new record; None when somebody else replaced the one before.

        Raises `GatewayError` when the answer did not come: then nobody knows.
        """
        value = pack(record)
        headers = {_EXPECTED: str(revision), **({} if value else {_OPERATION: "DEL"})}
        request = Request(subject=self.subject(stream, token), payload=value, headers=headers)
        try:
            answer = read_answer(await self._api.connection.request(request))
        except ApiError as error:
            if error.error_code == WRONG_LAST_SEQUENCE:
                return None
            raise fault_of(error, stream) from error
        except NoResponders as error:
            raise fault_of(ApiError(404, STREAM_NOT_FOUND, "no bucket"), STREAM) from error
        return int(answer["seq"])

    async def _create(self, queue: str) -> None:
        config = {
            "name": STREAM,
            "subjects": [f"$KV.{BUCKET}.>"],
            "max_msgs_per_subject": 1,
            "max_age": nanoseconds(MAX_AGE_S),
            "storage": "file",
            "discard": "new",
            "allow_rollup_hdrs": True,
            "deny_delete": True,
            "num_replicas": self._api.connection.settings.replicas,
        }
        try:
            await self._api.ask(f"STREAM.CREATE.{STREAM}", config)
        except ApiError as error:
            if error.error_code != STREAM_EXISTS:
                raise fault_of(error, queue) from error


def _asking_for(subject: str) -> bytes:
    return msgspec.json.encode({"last_by_subj": subject})


def _record_in(answer: Answer, stream: str) -> StoredRecord:
    try:
        message: dict[str, Any] = read_answer(answer)["message"]
    except ApiError as error:
        if error.error_code == MESSAGE_NOT_FOUND:
            return StoredRecord()
        raise fault_of(error, stream) from error
    except NoResponders as error:
        raise fault_of(ApiError(404, STREAM_NOT_FOUND, "no bucket"), STREAM) from error
    return StoredRecord(
        record=unpack(a2b_base64(message.get("data") or "")),
        revision=int(message["seq"]),
        stored_at_s=time_s(message.get("time")) or 0.0,
    )

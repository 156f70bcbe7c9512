"""Session locks: the bucket of records at the server, replaced by compare and set."""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Sequence
from typing import Any, Final, Literal

import attrs
import msgspec

from pump.clock import Clock

from .connection import ApiError, JetStream, fault_of, read_answer
from .errors import MESSAGE_NOT_FOUND, STREAM_EXISTS, STREAM_NOT_FOUND, WRONG_LAST_SEQUENCE
from .link import Answer, NoResponders, ServerRequest
from .queue_settings import time_s

BUCKET: Final = "pumphouse-sessions"
STREAM: Final = f"KV_{BUCKET}"
MAX_AGE_S: Final = 7 * 86_400.0
"""What was not touched for a week is forgotten."""
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
                ServerRequest(subject=subject, payload=_asking_for(self.subject(stream, token)))
                for token in tokens
            ]
        )
        return [_record_in(answer, stream) for answer in answers]

    async def replace(
        self, stream: str, token: str, record: SessionRecord, *, revision: int
    ) -> int | None:
        """The revision of the new record; None when another client replaced the one before.

        Raises `GatewayError` when the answer did not come: then it is unknown.
        """
        value = pack(record)
        headers = {_EXPECTED: str(revision), **({} if value else {_OPERATION: "DEL"})}
        request = ServerRequest(subject=self.subject(stream, token), payload=value, headers=headers)
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
        config = self._api.bucket(BUCKET, max_age_s=MAX_AGE_S) | {"deny_delete": True}
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


# Session records: what is written down of one group while it is, or was, a session. Pure.
#
# A record lives under a key of its own in a key-value bucket and is only ever replaced by a
# client that read the version before (compare and set). Its age is told by the server's clock.
#
# | a group is | when                                            | and then                        |
# |------------|-------------------------------------------------|---------------------------------|
# | free       | no record, or one without an owner, or the      | the first to replace it has     |
# |            | owner's lease is over                           | the lock                        |
# | held       | it has an owner whose lease is not over         | others wait                     |
# | resting    | free, but its first message is deferred         | it is not the next session, but |
# |            |                                                 | can be asked for by its id      |
#
# The owner is new with every lock, and the consumer of the session is named by it: taking over
# a lock deletes the consumer of the owner before, and with it everything that owner could ack.
# The server counts deliveries per consumer, so the counts of what was not acked are kept here.


class SessionRecord(msgspec.Struct, omit_defaults=True, frozen=True):
    """One group's record. Times are the server's, in Unix seconds."""

    v: Literal[1] = 1
    owner: str = ""
    lease_s: float = 0.0
    attempts: dict[int, int] = {}
    """By place in the stream, how often a message that is still there was tried."""
    rests_until_s: float = 0.0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing worth keeping in it."""
        return not (self.owner or self.attempts or self.rests_until_s)


@attrs.frozen(kw_only=True)
class StoredRecord:
    """A record as it was found; `revision` is what a replacement must name."""

    record: SessionRecord = SessionRecord()
    revision: int = 0
    stored_at_s: float = 0.0

    def held_for_s(self, now_s: float) -> float:
        """For how long it is held unless it is renewed; zero when it is free."""
        if not self.record.owner:
            return 0.0
        return max(self.stored_at_s + self.record.lease_s - now_s, 0.0)

    def rests_for_s(self, now_s: float) -> float:
        """For how long its first message is deferred."""
        return max(self.record.rests_until_s - now_s, 0.0)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(SessionRecord).decode


def pack(record: SessionRecord) -> bytes:
    """The value under the key; nothing for a record that is not worth keeping."""
    return b"" if record.is_empty else _encode(record)


def unpack(value: bytes) -> SessionRecord:
    """The record of a value; one that cannot be read locks nothing."""
    if not value:
        return SessionRecord()
    try:
        return _decode(value)
    except (msgspec.MsgspecError, ValueError):
        return SessionRecord()

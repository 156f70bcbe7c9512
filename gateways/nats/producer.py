"""The producer port of one NATS queue: many publishes under way, each confirmed as stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from pump.clock import Clock
from pump.errors import (
    ConnectionFailed,
    GatewayError,
    MessageTooLarge,
    PumpError,
    SendFailed,
    UnsupportedOperation,
)
from pump.message import Message, new_id

from .connection import ApiError, JetStream, fault_of, read_answer
from .link import Answer, NoResponders, ServerRequest
from .names import MAX_IN_FLIGHT, MAX_IN_FLIGHT_BYTES, NATS, SCHEDULING_SERVER, QueueNames
from .queue_settings import time_s
from .wire import SCHEDULE, SCHEDULE_TARGET, encode, schedule_at, size_of

_SCHEDULE_BYTES = 1_024
"""More than the headers of a delay take."""
_CLOCKS_AGREE_S = 60.0
"""How long a comparison of two clocks is good for: either may be set right meanwhile."""


@attrs.define(eq=False)
class _PendingPublish:
    """A message on its way, and what became of it."""

    message: Message
    request: ServerRequest
    size: int
    error: PumpError | None = None


class NatsProducer:
    """Sends to one queue, in the order given. Returns when the server has stored all."""

    def __init__(self, api: JetStream, queue: str, *, clock: Clock) -> None:
        self._api = api
        self._names = QueueNames.of(queue)
        self._clock = clock
        self._ahead: tuple[float, float] | None = None
        """When it was asked for, and by how much the server's clock was ahead of this one's."""

    async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
        """A delay is an `UnsupportedOperation` on servers before 2.12."""
        if not messages:
            return ()
        due_at = None if delay_s <= 0 else await self._due_at(delay_s)
        # Connected first: only then is known what the server takes.
        await self._api.connection.link()
        parcels = [self._pack(message, due_at) for message in messages]
        for chunk in _chunked([parcel for parcel in parcels if parcel.error is None]):
            for parcel, answer in zip(chunk, await self._publish(chunk), strict=True):
                parcel.error = self._fault(answer)
            if all(parcel.error is not None for parcel in chunk):
                # What comes after would fail alike, or overtake.
                self._give_up(parcels, chunk[-1])
                break
        self._raise_failures(parcels)
        return [message.id for message in messages]

    async def aclose(self) -> None:
        """Nothing to release: the connection is the gateway's."""

    def _pack(self, message: Message, due_at: str | None) -> _PendingPublish:
        names = self._names
        subject = target = names.subject(message.group)
        limit = self._api.connection.max_payload
        headers = encode(message, stream=names.stream, max_bytes=limit - _SCHEDULE_BYTES)
        if due_at is not None:
            headers |= {SCHEDULE: due_at, SCHEDULE_TARGET: target}
            subject = names.schedule(new_id())
        request = ServerRequest(subject=subject, payload=message.body, headers=headers)
        size = size_of(headers, message.body)
        error = MessageTooLarge(names.queue, size, limit) if size > limit else None
        return _PendingPublish(message, request, size, error)

    async def _publish(self, chunk: Sequence[_PendingPublish]) -> Sequence[Answer]:
        """What came of each; those of earlier chunks are stored, whatever happens to this one."""
        try:
            answers = await self._api.connection.request_all([each.request for each in chunk])
        except GatewayError as error:
            return [error for _ in chunk]
        if not any(isinstance(answer, NoResponders) for answer in answers):
            return answers
        why = await self._unheard()
        return [why if isinstance(answer, NoResponders) else answer for answer in answers]

    async def _unheard(self) -> GatewayError:
        """Why a message was not accepted: there is no queue, or it is between two leaders."""
        queue = self._names.queue
        try:
            await self._api.call(f"STREAM.INFO.{self._names.stream}", queue=queue)
        except GatewayError as error:
            return error
        target = self._api.connection.settings.target
        return ConnectionFailed(target, f"queue {queue!r} has no leader at the moment")

    def _fault(self, answer: Answer) -> PumpError | None:
        try:
            read_answer(answer)
        except ApiError as error:
            return fault_of(error, self._names.queue)
        except GatewayError as error:
            return error
        return None

    def _give_up(self, parcels: Sequence[_PendingPublish], last: _PendingPublish) -> None:
        position = parcels.index(last)
        for parcel in parcels[position + 1 :]:
            parcel.error = parcel.error or last.error

    def _raise_failures(self, parcels: Sequence[_PendingPublish]) -> None:
        """What happened to one message, or to all alike, is raised as it is."""
        failed = [parcel for parcel in parcels if parcel.error is not None]
        if not failed:
            return
        first = failed[0].error
        if first is not None and all(parcel.error == first for parcel in parcels):
            raise first
        raise SendFailed(
            self._names.queue,
            tuple((each.message.id, each.error) for each in failed if each.error is not None),
        )

    async def _due_at(self, delay_s: float) -> str:
        now_s = self._clock.now_s()
        if self._ahead is None or now_s - self._ahead[0] > _CLOCKS_AGREE_S:
            self._ahead = now_s, await self._server_ahead_s(delay_s)
        return schedule_at(self._clock.time_s() + self._ahead[1] + delay_s)

    async def _server_ahead_s(self, delay_s: float) -> float:
        """How far the server's clock is ahead of ours: a schedule is kept by the server's."""
        queue = self._names.queue
        info = await self._api.call(f"STREAM.INFO.{self._names.stream}", queue=queue)
        now_s = self._clock.time_s()
        if not info["config"].get("allow_msg_schedules"):
            wanted = ".".join(map(str, SCHEDULING_SERVER))
            raise UnsupportedOperation(
                NATS.gateway,
                f"a delay of {delay_s:g} s on queue {queue!r}",
                f"only nats-server {wanted} and later keep a message until its time, in streams "
                f"with allow_msg_schedules; defer it when it is received",
            )
        return (time_s(info.get("ts")) or now_s) - now_s


def _chunked(parcels: Sequence[_PendingPublish]) -> Iterator[list[_PendingPublish]]:
    chunk: list[_PendingPublish] = []
    size = 0
    for parcel in parcels:
        if chunk and (len(chunk) == MAX_IN_FLIGHT or size + parcel.size > MAX_IN_FLIGHT_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(parcel)
        size += parcel.size
    if chunk:
        yield chunk

"""The producer port of one queue."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import attrs

from pump.clock import Clock
from pump.errors import MessageTooLarge, PumpError, SendFailed
from pump.message import Message

from .connection import Connections
from .errors import RequestRefused, Where
from .names import MAX_PROPERTIES_BYTES, NO_GROUP, max_body_bytes
from .wire import Parcel, encode, in_session


@attrs.define(eq=False)
class _Outgoing:
    message: Message
    parcel: Parcel
    error: PumpError | None = None


class ServiceBusProducer:
    """Sends to one queue, in the order given, in batches of up to a hundred.

    A batch is of one session: so messages of different groups may overtake each other.
    """

    def __init__(self, connections: Connections, queue: str) -> None:
        self._connections = connections
        self._clock: Clock = connections.clock
        self._queue = queue
        self._where = Where(connections.address, "sending", queue)
        self._needs_session = False

    async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
        """A delay counts from our clock to the service's. `ConnectionFailed` leaves open whether
        the service has them.
        """
        outgoing = [_Outgoing(message, encode(message)) for message in messages]
        for each in outgoing:
            each.error = self._too_large(each)
        due_at = None
        if delay_s > 0:
            due_at = datetime.fromtimestamp(self._clock.time_s() + delay_s, UTC)
        by_session: dict[str | None, list[_Outgoing]] = {}
        for each in outgoing:
            if each.error is None:
                by_session.setdefault(each.parcel.session_id, []).append(each)
        await self._send(list(by_session.values()), due_at)
        self._raise_failures(outgoing)
        return [message.id for message in messages]

    async def aclose(self) -> None:
        """Nothing to let go of: connections are the gateway's."""

    async def _send(self, batches: Sequence[list[_Outgoing]], due_at: datetime | None) -> None:
        """The first that fails keeps back all that follow: in a group nothing may overtake, and
        a service that is away is not asked again for each group.
        """
        error: PumpError | None = None
        for rest in batches:
            try:
                while rest and error is None:
                    count = await self._sent([each.parcel for each in rest], due_at)
                    rest = rest[count:]
            except PumpError as caught:
                error = caught
            for each in rest:
                each.error = error

    async def _sent(self, parcels: Sequence[Parcel], due_at: datetime | None) -> int:
        from . import sdk

        if self._needs_session:
            parcels = _with_sessions(parcels)
        sender = self._connections.sender(self._queue)
        try:
            return await sender.call(self._where, lambda each: sdk.send(each, parcels, due_at))
        except RequestRefused as error:
            if self._needs_session or "sessionid" not in error.detail.lower():
                raise
        # Only a refusal tells that a queue takes no message without a session.
        self._needs_session = True
        return await self._sent(parcels, due_at)

    def _too_large(self, outgoing: _Outgoing) -> PumpError | None:
        size, settings = outgoing.parcel.size, self._connections.settings
        body_bytes, limit = len(outgoing.message.body), max_body_bytes(settings)
        if body_bytes > limit:
            return MessageTooLarge(self._queue, body_bytes, limit)
        if size > settings.max_message_bytes:
            return MessageTooLarge(self._queue, size, settings.max_message_bytes)
        if size - body_bytes > MAX_PROPERTIES_BYTES:
            return MessageTooLarge(self._queue, size - body_bytes, MAX_PROPERTIES_BYTES)
        return None

    def _raise_failures(self, outgoing: Sequence[_Outgoing]) -> None:
        """What happened to all is raised as it is; otherwise each failure has its message."""
        failed = [each for each in outgoing if each.error is not None]
        if not failed:
            return
        first = failed[0].error
        if first is not None and all(each.error is first for each in outgoing):
            raise first
        raise SendFailed(
            self._queue, tuple((each.message.id, each.error) for each in failed if each.error)
        )


def _with_sessions(parcels: Sequence[Parcel]) -> Sequence[Parcel]:
    return [each if each.session_id else in_session(each, NO_GROUP) for each in parcels]

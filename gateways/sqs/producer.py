"""The producer port of one SQS queue: batches by count and bytes, with the result of each entry."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import attrs

from pump.backoff import RECONNECT
from pump.clock import Clock
from pump.errors import (
    ConnectionFailed,
    GatewayError,
    MessageTooLarge,
    SendFailed,
    UnsupportedOperation,
)
from pump.message import Message
from pump.observability import vocabulary
from pump.observability.log import get_logger

from .._aws.errors import entry_fault
from .calls import MAX_BATCH, MAX_BYTES, MAX_DELAY_S, QueueAddress, QueueCalls, whole_seconds
from .claims import Claims
from .wire import SendEntry, encode, entry_request

_log = get_logger("gateways.sqs")
_SEND = "send_message_batch"
_MAX_ATTEMPTS = 4
_TOO_LARGE = re.compile(r"Message must be shorter than (\d+) bytes")


@attrs.define(eq=False)
class _Parcel:
    """A message on its way, and what became of it."""

    message: Message
    entry: SendEntry
    error: GatewayError | None = None

    @property
    def size(self) -> int:
        return self.entry.size


class SqsProducer:
    """Sends to one queue, in the order given.

    SQS takes a batch in part. What it refused by its own fault is sent again, a few times;
    what it refused by the message's fault is reported with the message's id.
    """

    def __init__(self, calls: QueueCalls, *, clock: Clock, claims: Claims | None = None) -> None:
        self._calls = calls
        self._clock = clock
        self._claims = claims
        self._is_fifo = QueueAddress.parse(calls.queue).is_fifo

    async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
        """A delay beyond 15 minutes, or any on a FIFO queue, is an `UnsupportedOperation`."""
        whole_delay_s = self._whole_delay_s(delay_s)
        parcels = [await self._pack(message) for message in messages]
        unsent = [parcel for parcel in parcels if parcel.error is None]
        for chunk in list(chunked(unsent)):
            try:
                await self._send_chunk(chunk, whole_delay_s)
            except GatewayError as error:
                for parcel in unsent:
                    parcel.error = error
                break
            del unsent[: len(chunk)]
        self._raise_failures(parcels)
        return [message.id for message in messages]

    async def aclose(self) -> None:
        """Nothing to release: connections are the gateway's."""

    def _whole_delay_s(self, delay_s: float) -> int:
        if delay_s <= 0:
            return 0
        if self._is_fifo:
            raise UnsupportedOperation(
                "sqs",
                f"a delay of {delay_s:g} s on FIFO queue {self._calls.queue!r}",
                "SQS delays FIFO queues as a whole; set options={'delay': …} on the queue",
            )
        if delay_s > MAX_DELAY_S:
            raise UnsupportedOperation(
                "sqs",
                f"a delay of {delay_s:g} s",
                f"SQS delays by {MAX_DELAY_S} s (15 minutes) at most",
            )
        return whole_seconds(delay_s)

    async def _pack(self, message: Message) -> _Parcel:
        if self._claims is not None:
            message = await self._claims.store(message, self._calls.queue)
        entry = encode(message, is_fifo=self._is_fifo)
        if entry.size <= MAX_BYTES:
            return _Parcel(message, entry)
        return _Parcel(message, entry, MessageTooLarge(self._calls.queue, entry.size, MAX_BYTES))

    async def _send_chunk(self, chunk: Sequence[_Parcel], delay_s: int) -> None:
        """Send until SQS has taken or refused each, or asking again has not helped."""
        pending = list(chunk)
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            pending = await self._send_once(pending, delay_s)
            if not pending or attempt == _MAX_ATTEMPTS:
                return
            _log.warning(
                vocabulary.SEND_REPEATED,
                queue=self._calls.queue,
                count=len(pending),
                error=repr(pending[0].error),
            )
            await self._clock.sleep(RECONNECT.delay_s(attempt, self._clock.chance()))

    async def _send_once(self, parcels: Sequence[_Parcel], delay_s: int) -> list[_Parcel]:
        """Send a batch, note each refusal, and return those that SQS may still take."""
        entries = [
            entry_request(parcel.entry, entry_id=str(position), delay_s=delay_s)
            for position, parcel in enumerate(parcels)
        ]
        reply = await self._calls.call(_SEND, {"Entries": entries})
        for parcel in parcels:
            parcel.error = None
        worth_repeating = []
        refused, sent = reply.get("Failed") or (), reply.get("Successful") or ()
        if len(refused) + len(sent) < len(parcels):
            worth_repeating = self._note_untold(parcels, {each["Id"] for each in (*refused, *sent)})
        for failed in refused:
            parcel = parcels[int(failed["Id"])]
            parcel.error = self._refusal(parcel, failed)
            if not failed.get("SenderFault", False):
                worth_repeating.append(parcel)
        return worth_repeating

    def _refusal(self, parcel: _Parcel, failed: Mapping[str, Any]) -> GatewayError:
        """Why SQS did not take it. AWS has no code for what is over the queue's own limit."""
        if (limit := _TOO_LARGE.search(str(failed.get("Message")))) is not None:
            return MessageTooLarge(self._calls.queue, parcel.size, int(limit[1]))
        return entry_fault(failed, operation=_SEND, target=self._calls.queue)

    def _note_untold(self, parcels: Sequence[_Parcel], told_ids: set[str]) -> list[_Parcel]:
        """Those of which a reply does not say that they are there."""
        untold = [each for at, each in enumerate(parcels) if str(at) not in told_ids]
        for parcel in untold:
            detail = "the reply does not tell of every message; is a proxy in the way?"
            parcel.error = ConnectionFailed(self._calls.queue, detail)
        return untold

    def _raise_failures(self, parcels: Sequence[_Parcel]) -> None:
        """What happened to one message, or to all alike, is raised as it is."""
        failed = [parcel for parcel in parcels if parcel.error is not None]
        if not failed:
            return
        first = failed[0].error
        if first is not None and all(parcel.error is first for parcel in parcels):
            raise first
        raise SendFailed(
            self._calls.queue,
            tuple((each.message.id, each.error) for each in failed if each.error is not None),
        )


# Chunks: a send cut to what one batch may hold. Pure.


class Weighed(Protocol):
    """What takes up space in a batch."""

    @property
    def size(self) -> int:
        """Its bytes, as SQS counts them."""


_W = TypeVar("_W", bound=Weighed)


def chunked(
    entries: Sequence[_W], *, max_count: int = MAX_BATCH, max_bytes: int = MAX_BYTES
) -> Iterator[Sequence[_W]]:
    """Yield the entries in their order, in runs within both limits.

    An entry that is over `max_bytes` by itself stands alone: refusing it is the sender's part.
    """
    start = size = 0
    for position, entry in enumerate(entries):
        is_full = position - start == max_count or size + entry.size > max_bytes
        if is_full and position > start:
            yield entries[start:position]
            start, size = position, 0
        size += entry.size
    if start < len(entries):
        yield entries[start:]

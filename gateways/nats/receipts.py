"""Receipts: what is in flight of one queue and until when, and what was handed back untried.

The server takes an ack after the lease for good, even one for an earlier delivery of a message that
another consumer is handling by now, and confirms all of them alike. So leases are kept here.

A server writes down what it delivered a moment later. One that is killed in that moment gives it
out again at once, to any consumer, and would still take the ack of the first. What it wrote has
lost the fractions of its seconds: leases end sooner by that after any restart, and so do deferrals,
which are therefore told again. A deferral is not told again once the message may have come to
another: the server would take it for that one's.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Final

import attrs
import msgspec
from msgspec.structs import replace

from pump.errors import AccessDenied, PumpError
from pump.message import Delivery
from pump.observability import vocabulary
from pump.observability.log import get_logger

from .._kit.leases import Lease, Leases
from .connection import ApiError, JetStream, fault_of, read_answer
from .errors import MESSAGE_NOT_FOUND, STREAM_EXISTS, STREAM_NOT_FOUND, no_jetstream
from .link import Answer, Incoming, Link, NoResponders, ServerRequest
from .names import COARSE_S, MAX_DEFERRALS
from .wire import NatsArrival, arrival_of

_numbers: Final = count(1)


def receipt_for(subject: str) -> str:
    """A receipt that no other delivery has. The subject alone would not do: a server that forgot
    a delivery makes the next one under the same.
    """
    return f"{subject}#{next(_numbers):x}"


def subject_of(receipt: str) -> str:
    """Where the server takes the settlement of what was received under a receipt."""
    return receipt.rpartition("#")[0]


@attrs.define(eq=False)
class _Deferral:
    lease: NatsLease
    told_at_s: float
    due_at_s: float

    def may_be_told(self, now_s: float, *, since_s: float) -> bool:
        """Whether the message is hidden still: by the deferral, or by its lease if the server may
        have forgotten the deferral.
        """
        is_kept = self.told_at_s < since_s
        hidden_until_s = self.due_at_s if is_kept else min(self.due_at_s, self.lease.ends_at_s)
        return now_s < hidden_until_s - (COARSE_S if is_kept else 0.0)


class NatsLease(Lease, eq=False, kw_only=True):
    """The lease of one delivery."""

    granted_at_s: float
    ended_at_s: float
    """Its end before it was last extended; the same as its beginning while it was not."""
    is_handed_back: bool = False
    """Whether its message was given back untried before."""


class Receipts(Leases[NatsLease]):
    """The receipts of one queue."""

    def __init__(self) -> None:
        super().__init__()
        self._deferrals: dict[str, _Deferral] = {}

    def enter(
        self, receipt: str, ends_at_s: float, *, now_s: float, is_handed_back: bool = False
    ) -> None:
        """Hold what was received just now."""
        self.hold(
            receipt,
            NatsLease(
                ends_at_s, granted_at_s=now_s, ended_at_s=now_s, is_handed_back=is_handed_back
            ),
        )

    def prolong(self, receipt: str, ends_at_s: float, *, now_s: float) -> None:
        """Extend, and remember what to fall back to if the server forgets it."""
        if (lease := self._held.get(receipt)) is not None:
            lease.granted_at_s, lease.ended_at_s = now_s, lease.ends_at_s
            self.extend(receipt, ends_at_s)

    def deferred(self, receipt: str, *, due_at_s: float, now_s: float) -> None:
        """The server confirmed a deferral; say it before the receipt is spent."""
        if len(self._deferrals) >= MAX_DEFERRALS:
            del self._deferrals[next(iter(self._deferrals))]
        if (lease := self._held.get(receipt)) is not None:
            self._deferrals[receipt] = _Deferral(lease, now_s, due_at_s)

    def doubt(self, since_s: float) -> None:
        """Do not count on what was granted since then: a server that was restarted may not
        remember it. What was received is dropped, what was extended ends as it did before, and
        all of it ends sooner by what the server rounds off.
        """
        deferred = [each.lease for each in self._deferrals.values()]
        for lease in (*self._held.values(), *deferred):
            if lease.granted_at_s >= since_s:
                lease.ends_at_s = min(lease.ends_at_s, lease.ended_at_s)
            lease.ends_at_s -= COARSE_S

    def to_tell_again(self, since_s: float, *, now_s: float) -> list[tuple[str, float]]:
        """The receipts of deferrals that a server which was restarted is to be told again, and
        for how long they last.
        """
        again = {
            receipt: deferral
            for receipt, deferral in self._deferrals.items()
            if deferral.may_be_told(now_s, since_s=since_s)
        }
        for deferral in again.values():
            deferral.told_at_s = now_s
        self._deferrals = again
        return [(receipt, deferral.due_at_s - now_s) for receipt, deferral in again.items()]


# Hand-backs: how often a message was given back untried, so that this costs none of its retries.
#
# The server counts every delivery and takes none back, and what is stored cannot be changed. So the
# number of hand-backs is kept beside the stream, in a key-value bucket:
#
# | when                                  | what                                                   |
# |---------------------------------------|--------------------------------------------------------|
# | a message is given back untried       | its number is written, then the server is told `-NAK`  |
# | one comes for a second time, or later | its number is read, and taken off the server's count   |
# | one that has a number is removed      | the number is removed too                              |
#
# What is never given back costs nothing. A process that dies between the two steps of the first
# line leaves a number that is right: the message was not tried. A key names the message's place in
# its stream and when it was stored there, so that a stream made anew finds nothing of the one
# before.

BUCKET: Final = "pumphouse-hand-backs"
STREAM: Final = f"KV_{BUCKET}"
MAX_AGE_S: Final = 30 * 86_400.0
"""When a number is forgotten that was neither changed nor removed: its message was purged."""

NAK: Final = b"-NAK"

Ask = Callable[[Sequence[ServerRequest]], Awaitable[list[Answer]]]

_log = get_logger("gateways.nats")


def key_of(arrival: NatsArrival) -> str:
    """Where the number of one message is kept."""
    return f"$KV.{BUCKET}.{arrival.stream}.{arrival.sequence}.{arrival.stored_at_ns}"


def attempt_after(delivery_count: int, hand_back_count: int) -> int:
    """Which attempt a delivery is. A server that was killed may have forgotten some."""
    return max(1, delivery_count - hand_back_count)


class HandBacks:
    """The numbers of all queues of an account."""

    def __init__(self, api: JetStream) -> None:
        self._api = api

    async def counted(self, deliveries: Sequence[Delivery]) -> tuple[list[Delivery], set[str]]:
        """The same, each with the attempt it is, and the receipts of those that were handed back.
        Only what came before is asked about.
        """
        arrivals = [_arrival(each) if each.attempt > 1 else None for each in deliveries]
        asked = [each for each in arrivals if each is not None]
        counts = dict(zip(asked, await self._read(asked, self._ask), strict=True))
        counted: list[Delivery] = []
        handed_back: set[str] = set()
        for delivery, arrival in zip(deliveries, arrivals, strict=True):
            if arrival is not None and (count := counts[arrival]):
                delivery = replace(delivery, attempt=attempt_after(arrival.attempt, count))
                handed_back.add(delivery.receipt)
            counted.append(delivery)
        return counted, handed_back

    async def note(self, deliveries: Sequence[Delivery]) -> None:
        """Before these are given back untried. Never raises: where the number cannot be written,
        the hand-back counts as an attempt, as the server would have it.
        """
        numbers = [
            (arrival, arrival.attempt - each.attempt + 1)
            for each in deliveries
            if (arrival := _arrival(each)) is not None
        ]
        await self._note(numbers, self._ask)

    async def give_back(self, link: Link, messages: Sequence[Incoming]) -> None:
        """Have messages delivered again that came for a receive which no longer waits."""
        ask = self._over(link)
        arrivals = [found for each in messages if (found := arrival_of(each.reply)) is not None]
        again = [each for each in arrivals if each.attempt > 1]
        try:
            before = dict(zip(again, await self._read(again, ask), strict=True))
            await self._note([(each, before.get(each, 0) + 1) for each in arrivals], ask)
        except PumpError as error:
            self._warn(error)
        for message in messages:
            if message.reply:
                await link.publish(message.reply, NAK)

    async def forget(self, link: Link, deliveries: Sequence[Delivery]) -> None:
        """After these were removed. What is left behind by a failure ends by its age."""
        operation = self._api.subject(f"STREAM.PURGE.{STREAM}")
        requests = [
            ServerRequest(
                subject=operation, payload=msgspec.json.encode({"filter": key_of(arrival)})
            )
            for each in deliveries
            if (arrival := _arrival(each)) is not None
        ]
        await self._over(link)(requests)

    def _over(self, link: Link) -> Ask:
        """Over this link and no other, so that a gateway can be closing meanwhile."""
        timeout_s = self._api.connection.settings.request_timeout_s
        return lambda requests: link.request_all(requests, timeout_s=timeout_s)

    async def _ask(self, requests: Sequence[ServerRequest]) -> list[Answer]:
        return await self._api.connection.request_all(requests)

    async def _read(self, arrivals: Sequence[NatsArrival], ask: Ask) -> list[int]:
        if not arrivals:
            return []
        operation = self._api.subject(f"STREAM.MSG.GET.{STREAM}")
        answers = await ask(
            [
                ServerRequest(
                    subject=operation,
                    payload=msgspec.json.encode({"last_by_subj": key_of(arrival)}),
                )
                for arrival in arrivals
            ]
        )
        return [self._number_in(answer) for answer in answers]

    def _number_in(self, answer: Answer) -> int:
        try:
            return _number(read_answer(answer)["message"].get("data"))
        except ApiError as error:
            if error.error_code in (MESSAGE_NOT_FOUND, STREAM_NOT_FOUND):
                return 0
            raise fault_of(error, STREAM) from error
        except AccessDenied as error:
            self._warn(error)
            return 0
        except NoResponders as error:
            connection = self._api.connection
            is_there = connection.has_jetstream
            raise no_jetstream(connection.settings.target, is_there=is_there) from error

    async def _note(self, numbers: Sequence[tuple[NatsArrival, int]], ask: Ask) -> None:
        if not numbers:
            return
        requests = [
            ServerRequest(subject=key_of(arrival), payload=b"%d" % number)
            for arrival, number in numbers
        ]
        try:
            answers = await ask(requests)
            if any(isinstance(answer, NoResponders) for answer in answers):
                # Nothing was ever given back in this account.
                await self._make_bucket(ask)
                answers = await ask(requests)
            for answer in answers:
                read_answer(answer)
        except (PumpError, ApiError, NoResponders) as error:
            self._warn(error)

    async def _make_bucket(self, ask: Ask) -> None:
        config = self._api.bucket(BUCKET, max_age_s=MAX_AGE_S)
        subject = self._api.subject(f"STREAM.CREATE.{STREAM}")
        [answer] = await ask([ServerRequest(subject=subject, payload=msgspec.json.encode(config))])
        try:
            read_answer(answer)
        except ApiError as error:
            if error.error_code != STREAM_EXISTS:
                raise

    def _warn(self, error: Exception) -> None:
        remedy = "none needed: the next one is written down when the server answers again"
        if isinstance(error, AccessDenied):
            remedy = f"allow publishing to $KV.{BUCKET}.> and asking $JS.API.>"
        _log.warning(vocabulary.HAND_BACK_COUNTED, error=repr(error), remedy=remedy)


def _arrival(delivery: Delivery) -> NatsArrival | None:
    return arrival_of(subject_of(delivery.receipt))


def _number(data: object) -> int:
    """What is not a number there is not ours, and takes nothing off."""
    octets = a2b_base64(data) if isinstance(data, str) else b""
    return int(octets) if octets.isdigit() else 0

"""Inbound: from what SQS returned to deliveries, with bodies fetched from where they wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from pump.clock import Clock
from pump.errors import PumpError
from pump.message import Delivery, Message
from pump.observability import vocabulary
from pump.observability.log import get_logger

from .._aws.errors import ObjectNotFound
from .._kit.leases import Lease, Leases
from .claims import Claims
from .wire import attempt_of, read

_log = get_logger("gateways.sqs")


def deliveries_of(
    raw: Iterable[Mapping[str, Any]],
    *,
    queue: str,
    ends_at_s: float,
    is_fifo: bool,
    unwrap_sns: bool,
) -> list[Delivery]:
    """A delivery for each message of a reply, understood or not."""
    deliveries: list[Delivery] = []
    for each in raw:
        message, native = read(each, unwrap_sns=unwrap_sns)
        delivery = Delivery(
            message=message,
            queue=queue,
            receipt=each["ReceiptHandle"],
            attempt=attempt_of(each),
            lease_expires_at_s=ends_at_s,
            is_ordered=is_fifo,
            broker_id=each.get("MessageId"),
            native=native,
        )
        deliveries.append(delivery)
    return deliveries


class ClaimedBodies:
    """The bodies that wait in S3 for one consumer's messages: fetched on receipt, and removed
    only after the message was deleted.
    """

    def __init__(
        self,
        claims: Claims,
        receipts: SqsReceipts,
        *,
        is_fifo: bool,
        clock: Clock,
        patience_s: float,
    ) -> None:
        self._claims = claims
        self._receipts = receipts
        self._is_fifo = is_fifo
        self._clock = clock
        self._patience_s = patience_s
        """How long S3 may take, while the leases of all that came along run."""
        self._claimed: dict[str, Message] = {}
        """By receipt, the message that held the claim."""
        self._discarding: set[asyncio.Task[None]] = set()

    async def fetch(
        self, deliveries: Sequence[Delivery]
    ) -> tuple[Sequence[Delivery], Sequence[Delivery]]:
        """The deliveries with their bodies, and those whose body cannot be had at the moment."""
        if not any(self._claims.is_claim(each.message) for each in deliveries):
            return deliveries, ()
        self._forget_unheld()
        fetched = await asyncio.gather(*(self._fetch(each) for each in deliveries))
        ready: list[Delivery] = []
        unready: list[Delivery] = []
        blocked: set[str | None] = set()
        for delivery, whole in zip(deliveries, fetched, strict=True):
            if whole is not None and delivery.message.group not in blocked:
                ready.append(whole)
                continue
            unready.append(delivery)
            if self._is_fifo:
                # What comes after it in its group must not overtake it.
                blocked.add(delivery.message.group)
        return ready, unready

    def holds(self, delivery: Delivery) -> bool:
        """Whether its body was fetched, and waits to be removed."""
        return delivery.receipt in self._claimed

    def discard(self, deliveries: Sequence[Delivery]) -> None:
        """Have the bodies of messages that were deleted removed. S3 is not waited for: the ack is
        confirmed, and a failure leaves an orphan behind, no more.
        """
        for delivery in deliveries:
            claimed = self._claimed.pop(delivery.receipt, None)
            if claimed is not None:
                task = asyncio.create_task(self._discard(claimed), name="sqs body")
                self._discarding.add(task)
                task.add_done_callback(self._discarding.discard)

    async def aclose(self) -> None:
        """Wait until what was to be removed is gone, or could not be removed."""
        await asyncio.gather(*self._discarding)

    async def _discard(self, claimed: Message) -> None:
        try:
            await self._claims.discard(claimed)
        except PumpError as error:
            _log.warning(vocabulary.BODY_ORPHANED, message_id=claimed.id, error=repr(error))

    def _forget_unheld(self) -> None:
        for receipt in [each for each in self._claimed if each not in self._receipts]:
            del self._claimed[receipt]

    async def _fetch(self, delivery: Delivery) -> Delivery | None:
        claimed = delivery.message
        try:
            async with self._clock.timeout(self._patience_s):
                message = await self._claims.redeem(claimed)
        except ObjectNotFound:
            # Delivered as it is, to be rejected with its claim: it will not get better.
            return delivery
        except (PumpError, TimeoutError) as error:
            _log.warning(vocabulary.BODY_NOT_FETCHED, message_id=claimed.id, error=repr(error))
            return None
        if message is claimed:
            return delivery
        self._claimed[delivery.receipt] = claimed
        return replace(delivery, message=message)


# Receipts. SQS itself forgives too much: deleting twice succeeds, and so does settling a message of
# a standard queue whose lease is over and which another consumer may be handling by now.


class SqsReceipts(Leases[Lease]):
    """The receipts of one queue."""

    def enter(self, receipts: Iterable[str], *, ends_at_s: float, now_s: float) -> None:
        """Hold what was received just now; what was not settled in time is forgotten."""
        self.forget_over(now_s)
        for receipt in receipts:
            self._held[receipt] = Lease(ends_at_s)

"""Inbound and settling: what SQS returned, as deliveries, until each is deleted or seen again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, assert_never

import attrs
from msgspec.structs import replace

from pump.clock import Clock
from pump.errors import GatewayError, InvalidReceipt, PumpError
from pump.message import Delivery, Message
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.outcome import Abandon, Ack, Defer, Refusal, Settlement

from .._aws.errors import ObjectNotFound, entry_fault
from .._kit.leases import Failures, Lease, Leases, LeaseSettler
from .calls import (
    MAX_BATCH,
    MAX_VISIBILITY_S,
    QueueCalls,
    delete_entries,
    hide_entries,
    whole_seconds,
)
from .claims import Claims
from .wire import attempt_of, read

# Inbound: from what SQS returned to deliveries, with bodies fetched from where they wait.

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
        held = self._held
        for receipt in receipts:
            held[receipt] = Lease(ends_at_s)


_DELETE = "delete_message_batch"
_HIDE = "change_message_visibility_batch"


@attrs.frozen(eq=False)
class _Batch:
    """Up to ten entries of one request, and when each is to be seen again (deletes: never)."""

    operation: str
    deliveries: Sequence[Delivery]
    seconds: Sequence[int] = ()

    @property
    def entries(self) -> list[dict[str, object]]:
        if self.operation == _DELETE:
            return delete_entries(self.deliveries)
        return hide_entries(self.deliveries, self.seconds)


class SqsSettling:
    """Settles and extends what one consumer received.

    A settlement or extension after the lease's end, or a second settlement, is refused here
    without asking SQS, which would allow it.
    """

    def __init__(
        self,
        calls: QueueCalls,
        receipts: SqsReceipts,
        *,
        clock: Clock,
        lease_s: int,
        doubt_s: float = 0.0,
        on_deleted: Callable[[Sequence[Delivery]], None] | None = None,
    ) -> None:
        """`doubt_s` before a lease's end an extension proves nothing any more: it may be granted to
        a receipt whose lease is over, too, and the lease began before we knew of it.
        """
        self._calls = calls
        self._receipts = receipts
        self._clock = clock
        self._lease_s = lease_s
        self._doubt_s = doubt_s
        self._on_deleted = on_deleted
        self._settler = LeaseSettler(calls.queue, receipts, self._perform, clock=clock)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        """Apply each once; see `ConsumerPort.settle`."""
        return await self._settler.settle(settlements)

    async def _perform(
        self, settlements: Sequence[Settlement], leases: Sequence[Lease]
    ) -> Failures:
        now_s = self._clock.now_s()
        deleted: list[Delivery] = []
        hidden: list[Delivery] = []
        seconds: list[int] = []
        for each in settlements:
            if isinstance(each.action, Ack):
                deleted.append(each.delivery)
            else:
                hidden.append(each.delivery)
                seconds.append(self._hide_s(each.action, each.delivery, now_s))
        batches = [*_batches(_DELETE, deleted), *_batches(_HIDE, hidden, seconds)]
        if len(batches) == 1:
            return await self._settle_batch(batches[0])
        return await _all(self._settle_one_of_several, batches)

    async def extend(self, deliveries: Sequence[Delivery], lease_s: float) -> Sequence[Refusal]:
        """Hide each for `lease_s` from now; see `ConsumerPort.extend`."""
        now_s = self._clock.now_s()
        extended: list[Delivery] = []
        seconds: list[int] = []
        refusals: list[Refusal] = []
        for delivery in deliveries:
            hide_s = self._within_ceiling_s(lease_s, delivery, now_s)
            if hide_s > 0 and self._receipts.find(delivery.receipt, now_s + self._doubt_s):
                extended.append(delivery)
                seconds.append(hide_s)
            else:
                refusals.append(self._settler.refusal(delivery))
        failures = await _all(self._extend_batch, list(_batches(_HIDE, extended, seconds)))
        if failures:
            refusals += [
                Refusal(each, failures[each.receipt])
                for each in extended
                if each.receipt in failures
            ]
        return refusals

    async def _settle_batch(self, batch: _Batch) -> Failures:
        failures = await self._ask(batch)
        if batch.operation == _HIDE:
            # Not in flight any more is what was asked for: an earlier answer was lost.
            failures = {
                receipt: error
                for receipt, error in failures.items()
                if not isinstance(error, InvalidReceipt)
            }
        if self._on_deleted is not None and batch.operation == _DELETE:
            self._on_deleted([each for each in batch.deliveries if each.receipt not in failures])
        return failures

    async def _settle_one_of_several(self, batch: _Batch) -> Failures:
        failures = await self._settle_batch(batch)
        for each in batch.deliveries:
            if each.receipt not in failures:
                # At once: another batch may fail, and what is applied must not be tried again.
                self._receipts.spend(each.receipt)
        return failures

    async def _extend_batch(self, batch: _Batch) -> Failures:
        asked_at_s = self._clock.now_s()
        failures = await self._ask(batch)
        for delivery, hide_s in zip(batch.deliveries, batch.seconds, strict=True):
            receipt = delivery.receipt
            if receipt not in failures and self._is_too_late(receipt):
                failures[receipt] = self._settler.invalid(receipt)
            error = failures.get(receipt)
            if error is None:
                self._receipts.extend(receipt, asked_at_s + hide_s)
            elif isinstance(error, InvalidReceipt):
                self._receipts.spend(receipt)
        return failures

    def _is_too_late(self, receipt: str) -> bool:
        """Whether the lease may have been over when SQS granted another end."""
        if not self._doubt_s or receipt not in self._receipts:
            return False
        return self._receipts.find(receipt, self._clock.now_s() + self._doubt_s) is None

    async def _ask(self, batch: _Batch) -> dict[str, GatewayError]:
        reply = await self._calls.call(batch.operation, {"Entries": batch.entries})
        failed = reply.get("Failed")
        if not failed:
            return {}
        return dict(self._fault(batch, entry) for entry in failed)

    def _fault(self, batch: _Batch, entry: dict[str, object]) -> tuple[str, GatewayError]:
        receipt = batch.deliveries[int(str(entry["Id"]))].receipt
        error = entry_fault(entry, operation=batch.operation, target=self._calls.queue)
        if isinstance(error, InvalidReceipt):
            error = self._settler.invalid(receipt)
        return receipt, error

    def _hide_s(self, action: Defer | Abandon, delivery: Delivery, now_s: float) -> int:
        match action:
            case Defer(delay_s=delay_s):
                return self._within_ceiling_s(delay_s, delivery, now_s)
            case Abandon():
                return 0
            case _:
                assert_never(action)

    def _within_ceiling_s(self, seconds: float, delivery: Delivery, now_s: float) -> int:
        received_at_s = delivery.lease_expires_at_s - self._lease_s
        left_s = int(received_at_s + MAX_VISIBILITY_S - now_s)
        return whole_seconds(seconds, most=max(0, left_s))


def _batches(
    operation: str, deliveries: Sequence[Delivery], seconds: Sequence[int] = ()
) -> Iterator[_Batch]:
    for start in range(0, len(deliveries), MAX_BATCH):
        end = start + MAX_BATCH
        yield _Batch(operation, deliveries[start:end], seconds[start:end])


async def _all(
    perform: Callable[[_Batch], Awaitable[Failures]], batches: Sequence[_Batch]
) -> Failures:
    """Perform the batches side by side. One that fails is refused as a whole, unless all do."""
    if not batches:
        return {}
    if len(batches) == 1:
        return await perform(batches[0])
    results = await asyncio.gather(*map(perform, batches), return_exceptions=True)
    errors = [result for result in results if isinstance(result, GatewayError)]
    if len(errors) == len(results):
        raise errors[0]
    failures: dict[str, GatewayError] = {}
    for batch, result in zip(batches, results, strict=True):
        if isinstance(result, GatewayError):
            failures |= dict.fromkeys([each.receipt for each in batch.deliveries], result)
        elif isinstance(result, BaseException):
            raise result
        else:
            failures |= result
    return failures

"""Contract: each settlement is applied once, or refused with its receipt; nothing in between."""

from __future__ import annotations

from msgspec.structs import replace

from ...errors import InvalidReceipt
from ...message import Delivery
from ...outcome import Refusal
from ..builders import a_message, abandon, ack, defer
from .rig import ContractTests, Rig


class SettlingContract(ContractTests):
    """R5, R6, R7, R11, R17; law 1: a delivery is settled exactly once."""

    async def test_when_acked_then_the_message_never_comes_back(self, rig: Rig) -> None:
        """R5, R7."""
        queue = await rig.open_queue()
        await queue.send(a_message())
        [received] = await queue.receive()

        refused = await queue.settle(ack(received))

        assert list(refused) == []
        assert await queue.find_nothing()
        await rig.advance(2 * rig.lease_s)
        assert await queue.find_nothing()

    async def test_when_acked_twice_then_the_second_is_refused_with_its_receipt(
        self, rig: Rig
    ) -> None:
        """R5, R6; law 1."""
        queue = await rig.open_queue()
        await queue.send(a_message())
        [received] = await queue.receive()
        await queue.settle(ack(received))

        [refusal] = await queue.settle(ack(received))

        assert_is_refused(refusal, received)

    async def test_when_a_batch_settles_one_delivery_twice_then_one_of_them_is_refused(
        self, rig: Rig
    ) -> None:
        """R6; law 1."""
        queue = await rig.open_queue()
        await queue.send(a_message())
        [received] = await queue.receive()

        [refusal] = await queue.settle(ack(received), ack(received))

        assert_is_refused(refusal, received)
        await rig.advance(rig.lease_s)
        assert await queue.find_nothing()

    async def test_when_deferred_then_an_ack_that_follows_is_refused(self, rig: Rig) -> None:
        """R6, R9; law 1."""
        queue = await rig.open_queue()
        await queue.send(a_message())
        [received] = await queue.receive()
        await queue.settle(defer(received))

        [refusal] = await queue.settle(ack(received))

        assert_is_refused(refusal, received)
        [again] = await queue.receive()
        assert again.message.id == received.message.id

    async def test_when_the_receipt_was_never_given_then_it_is_refused_and_nothing_changes(
        self, rig: Rig
    ) -> None:
        """R6, R14."""
        queue = await rig.open_queue()
        await queue.send(a_message())
        [received] = await queue.receive()
        forged = replace(received, receipt="no-such-receipt")

        [refusal] = await queue.settle(ack(forged))

        assert_is_refused(refusal, forged)
        assert not await queue.settle(ack(received))

    async def test_when_the_receipt_is_of_another_queue_then_it_is_refused_and_nothing_changes(
        self, rig: Rig
    ) -> None:
        """R6, R14."""
        orders = await rig.open_queue("orders")
        invoices = await rig.open_queue("invoices")
        await orders.send(a_message())
        [received] = await orders.receive()

        refused = await invoices.settle(ack(received))

        assert [refusal.delivery for refusal in refused] == [received]
        assert not await orders.settle(ack(received))

    async def test_when_one_receipt_of_a_batch_is_stale_then_the_others_are_applied(
        self, rig: Rig
    ) -> None:
        """R6, R58: partial failures are reported per message."""
        queue = await rig.open_queue()
        await queue.send(*(a_message() for _ in range(4)))
        first, stale, third, fourth = await queue.take(4)
        await queue.settle(ack(stale))

        refused = await queue.settle(ack(first), ack(stale), defer(third), abandon(fourth))

        assert [refusal.delivery for refusal in refused] == [stale]
        back = {each.message.id for each in await queue.take(4)}
        assert back == {third.message.id, fourth.message.id}

    async def test_when_more_is_settled_than_one_request_holds_then_all_is_applied(
        self, rig: Rig
    ) -> None:
        """R58."""
        count = min(2 * rig.capabilities.settle_batch + 1, 201)
        queue = await rig.open_queue()
        await queue.send(*(a_message() for _ in range(count)))
        received = await queue.take(count)

        refused = await queue.settle(*map(ack, received))

        assert len(received) == count
        assert list(refused) == []
        await rig.advance(rig.lease_s)
        assert await queue.find_nothing()

    async def test_when_nothing_is_settled_then_nothing_is_refused(self, rig: Rig) -> None:
        """R6."""
        queue = await rig.open_queue()

        refused = await queue.settle()

        assert list(refused) == []

    async def test_when_deferred_then_hidden_until_the_delay_has_passed(self, rig: Rig) -> None:
        """R11, R17: counted up, and requeued with a visibility of its own."""
        queue = await rig.open_queue()
        await queue.send(a_message())
        [first] = await queue.receive()

        await queue.settle(defer(first, seconds=2 * rig.tick_s))

        assert await queue.find_nothing()
        await rig.clock.advance(rig.tick_s)
        assert await queue.find_nothing()
        await rig.advance(rig.tick_s)
        [again] = await queue.receive()
        assert (again.message.id, again.attempt) == (first.message.id, 2)

    async def test_when_deferred_for_longer_than_the_lease_then_the_delay_counts(
        self, rig: Rig
    ) -> None:
        """R11, R17."""
        queue = await rig.open_queue()
        await queue.send(a_message())
        [first] = await queue.receive()

        await queue.settle(defer(first, seconds=rig.lease_s + 2 * rig.tick_s))

        await rig.clock.advance(rig.lease_s + rig.tick_s)
        assert await queue.find_nothing()
        await rig.advance(rig.tick_s)
        assert len(await queue.receive()) == 1

    async def test_when_deferred_without_a_delay_then_visible_at_once_as_the_next_attempt(
        self, rig: Rig
    ) -> None:
        """R11, R17."""
        queue = await rig.open_queue()
        await queue.send(a_message())
        [first] = await queue.receive()

        await queue.settle(defer(first))

        [again] = await queue.receive()
        assert (again.message.id, again.attempt) == (first.message.id, 2)

    async def test_when_a_message_comes_back_then_it_is_the_same_message(self, rig: Rig) -> None:
        """R1, R17: retries change neither body nor headers."""
        queue = await rig.open_queue()
        sent = a_message(bytes(range(256)), type="PlaceOrder", headers={"tenant": "north"})
        await queue.send(sent)
        [first] = await queue.receive()

        await queue.settle(defer(first))

        [again] = await queue.receive()
        assert again.message == sent

    async def test_when_abandoned_then_visible_at_once_to_others(self, rig: Rig) -> None:
        """R11."""
        queue = await rig.open_queue()
        await queue.send(a_message())
        [first] = await queue.receive()

        await queue.settle(abandon(first))

        [again] = await queue.another_consumer().receive(max_count=1, wait_s=rig.sure_s)
        assert again.message.id == first.message.id
        assert again.receipt != first.receipt

    async def test_when_abandoned_then_it_does_not_count_as_an_attempt(self, rig: Rig) -> None:
        """T5: only what was tried is counted."""
        rig.needs_uncounted_abandon()
        queue = await rig.open_queue()
        await queue.send(a_message())

        for _ in range(3):
            [received] = await queue.receive()
            await queue.settle(abandon(received))

        [again] = await queue.receive()
        assert again.attempt == 1

    async def test_when_deferred_again_and_again_then_every_attempt_is_counted(
        self, rig: Rig
    ) -> None:
        """R17, T5: attempts come from the broker, not from a process's memory."""
        queue = await rig.open_queue()
        await queue.send(a_message())

        seen = []
        for _ in range(5):
            worker = queue.another_consumer()
            [received] = await worker.receive(max_count=1, wait_s=rig.sure_s)
            seen.append(received.attempt)
            await worker.settle([defer(received)])

        assert seen == [1, 2, 3, 4, 5]


def assert_is_refused(refusal: Refusal, delivery: Delivery) -> None:
    """It is a final refusal of this delivery that carries its receipt (R6)."""
    assert refusal.delivery is delivery
    assert isinstance(refusal.error, InvalidReceipt)
    assert refusal.error.receipt == delivery.receipt
    assert refusal.is_final


# Contract: a lease hides a message, runs out by itself, and can be extended while it lasts.


class LeaseContract(ContractTests):
    """R6, R8, R9, R14, R15, R16."""

    async def test_when_a_lease_runs_out_then_the_message_is_available_again(
        self, rig: Rig
    ) -> None:
        """R8: and counted as one more attempt."""
        rig.needs("has_lease_expiry")
        queue = await rig.open_queue()
        await queue.send(a_message())
        [first] = await queue.receive()

        await rig.clock.advance(2 * rig.tick_s)
        was_hidden = await queue.find_nothing()
        await rig.advance(rig.tick_s)

        assert was_hidden
        [again] = await queue.receive()
        assert (again.message.id, again.attempt) == (first.message.id, 2)

    async def test_when_delivered_again_then_only_the_new_receipt_is_valid(self, rig: Rig) -> None:
        """R9."""
        rig.needs("has_lease_expiry")
        queue = await rig.open_queue()
        await queue.send(a_message())
        [first] = await queue.receive()
        await rig.advance(rig.lease_s)
        [again] = await queue.receive()

        [refusal] = await queue.settle(ack(first))

        assert again.receipt != first.receipt
        assert_is_refused(refusal, first)
        assert not await queue.settle(ack(again))

    async def test_when_the_lease_is_over_then_every_settlement_is_refused(self, rig: Rig) -> None:
        """R6; law 3: even before another consumer received the message."""
        rig.needs("has_lease_expiry")
        queue = await rig.open_queue()
        await queue.send(a_message())
        [expired] = await queue.receive()
        await rig.advance(rig.lease_s)

        refused = [
            *await queue.settle(ack(expired)),
            *await queue.settle(defer(expired, seconds=6 * rig.tick_s)),
            *await queue.settle(abandon(expired)),
            *await queue.extend(expired, lease_s=6 * rig.tick_s),
        ]

        assert len(refused) == 4
        for refusal in refused:
            assert_is_refused(refusal, expired)
        [again] = await queue.receive()
        assert again.message.id == expired.message.id

    async def test_when_many_are_delivered_again_and_again_then_no_receipt_repeats(
        self, rig: Rig
    ) -> None:
        """R14."""
        queue = await rig.open_queue()
        await queue.send(*(a_message() for _ in range(20)))

        receipts = []
        for _ in range(3):
            received = await queue.take(20)
            receipts += [delivery.receipt for delivery in received]
            await queue.settle(*map(defer, received))

        assert len(receipts) == 60
        assert len(set(receipts)) == 60

    async def test_when_a_lease_is_extended_then_hidden_until_the_new_end(self, rig: Rig) -> None:
        """R15: a 30 s lock renewed at 20 s lasts until 50 s."""
        queue = await rig.open_queue()
        await queue.send(a_message())
        [received] = await queue.receive()
        await rig.clock.advance(2 * rig.tick_s)

        refused = await queue.extend(received, lease_s=rig.lease_s)

        assert list(refused) == []
        await rig.clock.advance(2 * rig.tick_s)
        assert await queue.find_nothing()
        assert not await queue.settle(ack(received))

    async def test_when_an_extended_lease_runs_out_then_the_message_is_available_again(
        self, rig: Rig
    ) -> None:
        """R15, R8: the new end is an end."""
        rig.needs("has_lease_expiry")
        queue = await rig.open_queue()
        await queue.send(a_message())
        [received] = await queue.receive()
        await rig.clock.advance(2 * rig.tick_s)
        await queue.extend(received, lease_s=rig.lease_s)

        await rig.advance(rig.lease_s)

        [again] = await queue.receive()
        assert again.attempt == 2

    async def test_when_extended_then_the_new_lease_counts_from_now(self, rig: Rig) -> None:
        """R15: an extension may also shorten."""
        rig.needs("has_lease_expiry")
        queue = await rig.open_queue()
        await queue.send(a_message())
        [received] = await queue.receive()

        await queue.extend(received, lease_s=rig.tick_s)

        await rig.advance(rig.tick_s)
        assert len(await queue.receive()) == 1

    async def test_when_one_of_a_batch_cannot_be_extended_then_the_others_are(
        self, rig: Rig
    ) -> None:
        """R15, R16."""
        queue = await rig.open_queue()
        await queue.send(a_message(), a_message())
        held, released = await queue.take(2)
        await queue.settle(ack(released))
        await rig.clock.advance(2 * rig.tick_s)

        [refusal] = await queue.extend(released, held, lease_s=rig.lease_s)

        assert_is_refused(refusal, released)
        await rig.clock.advance(2 * rig.tick_s)
        assert await queue.find_nothing()
        assert not await queue.settle(ack(held))

    async def test_when_released_then_an_extension_is_refused(self, rig: Rig) -> None:
        """R16: after an ack, and after the message was given back."""
        queue = await rig.open_queue()
        await queue.send(a_message(), a_message())
        done, given_back = await queue.take(2)
        await queue.settle(ack(done), defer(given_back, seconds=rig.tick_s))

        refused = await queue.extend(done, given_back, lease_s=6 * rig.tick_s)

        assert {refusal.delivery for refusal in refused} == {done, given_back}
        await rig.advance(rig.tick_s)
        assert [each.message.id for each in await queue.take(2)] == [given_back.message.id]

    async def test_when_one_lease_of_a_batch_is_extended_then_the_others_still_run_out(
        self, rig: Rig
    ) -> None:
        """R15: a lease is a message's own, also when several were received together."""
        rig.needs("has_lease_expiry")
        queue = await rig.open_queue()
        await queue.send(a_message(), a_message())
        kept, left = await queue.take(2)

        await queue.extend(kept, lease_s=3 * rig.lease_s)
        await rig.advance(rig.lease_s)

        assert [each.message.id for each in await queue.take(2)] == [left.message.id]
        assert not await queue.settle(ack(kept))

    async def test_when_the_consumer_closes_then_its_messages_become_available_again(
        self, rig: Rig
    ) -> None:
        """R8: leases that were not settled run out by themselves."""
        queue = await rig.open_queue()
        await queue.send(a_message())
        worker = queue.another_consumer()
        [received] = await worker.receive(max_count=1, wait_s=rig.sure_s)

        await worker.aclose()
        await rig.advance(rig.lease_s)

        assert [each.message.id for each in await queue.take(2)] == [received.message.id]

"""Contract: a lease hides a message, runs out by itself, and can be extended while it lasts."""

from __future__ import annotations

from ..builders import a_message, abandon, ack, defer
from .base import ContractTests
from .rig import Rig
from .settling import assert_is_refused


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

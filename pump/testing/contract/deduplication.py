"""Contract: one de-duplication id inside the window is one message."""

from __future__ import annotations

from ..builders import a_message, ack
from .base import ContractTests
from .rig import Rig


class DeduplicationContract(ContractTests):
    """R39."""

    async def test_when_sent_twice_inside_the_window_then_delivered_once(self, rig: Rig) -> None:
        """R39: the second send succeeds, it only adds nothing."""
        rig.needs("has_deduplication")
        queue = await rig.open_ordered_queue()
        first = a_message("first", deduplication_id="order-1")
        await queue.send(first)

        ids = await queue.send(a_message("second", deduplication_id="order-1"))

        assert len(ids) == 1
        assert [each.id for each in await queue.take_and_ack(2)] == [first.id]

    async def test_when_one_send_holds_it_twice_then_delivered_once(self, rig: Rig) -> None:
        """R39, R58."""
        rig.needs("has_deduplication")
        queue = await rig.open_ordered_queue()

        await queue.send(*(a_message(deduplication_id="order-1") for _ in range(3)))

        assert len(await queue.take_and_ack(3)) == 1

    async def test_when_the_first_was_acked_then_a_duplicate_is_still_not_delivered(
        self, rig: Rig
    ) -> None:
        """R39: the window counts from the send, whatever became of the message."""
        rig.needs("has_deduplication")
        queue = await rig.open_ordered_queue()
        await queue.send(a_message(deduplication_id="order-1"))
        [received] = await queue.receive()
        await queue.settle(ack(received))

        await queue.send(a_message(deduplication_id="order-1"))

        assert await queue.find_nothing()

    async def test_when_the_window_has_passed_then_delivered_again(self, rig: Rig) -> None:
        """R39."""
        rig.needs("has_deduplication")
        rig.needs_time(rig.deduplication_window_s)
        queue = await rig.open_ordered_queue()
        await queue.send(a_message("first", deduplication_id="order-1"))
        await rig.advance(rig.deduplication_window_s)

        await queue.send(a_message("second", deduplication_id="order-1"))

        assert [each.body for each in await queue.take_and_ack(3)] == [b"first", b"second"]

    async def test_when_ids_or_queues_differ_then_each_message_is_delivered(self, rig: Rig) -> None:
        """R39: an id counts within its queue; without one nothing is a duplicate."""
        rig.needs("has_deduplication")
        orders = await rig.open_ordered_queue("orders")
        invoices = await rig.open_ordered_queue("invoices")

        await orders.send(*(a_message(deduplication_id=f"order-{number}") for number in (1, 2)))
        await orders.send(a_message("same"), a_message("same"))
        await invoices.send(a_message(deduplication_id="order-1"))

        assert len(await orders.take_and_ack(5)) == 4
        assert len(await invoices.take_and_ack(2)) == 1

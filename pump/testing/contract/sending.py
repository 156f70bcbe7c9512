"""Contract: what is sent arrives, exactly, once it is due, and nowhere else."""

from __future__ import annotations

import pytest

from ...errors import MessageTooLarge, QueueNotFound, SendFailed
from ..builders import a_message, ack
from .base import ContractTests
from .rig import Rig


class SendingContract(ContractTests):
    """R1, R2, R58 and the delay of a send."""

    async def test_when_messages_are_sent_then_each_gets_an_id_of_its_own(self, rig: Rig) -> None:
        """R1."""
        queue = await rig.open_queue()

        ids = await queue.send(a_message("1"), a_message("2"), a_message("3"))

        assert len(ids) == 3
        assert all(ids)
        assert len(set(ids)) == 3

    async def test_when_a_message_is_sent_then_every_field_arrives_exactly(self, rig: Rig) -> None:
        """R1, R28: the id is the application's and survives."""
        queue = await rig.open_queue()
        sent = a_message(
            '{"sku": "A-1"}',
            type="PlaceOrder",
            content_type="application/vnd.shop+json",
            correlation_id="correlation-1",
            reply_to="answers",
            created_at_s=1_750_000_000.125,
            headers={"tenant": "north"},
        )

        await queue.send(sent)

        [received] = await queue.receive()
        assert received.message == sent
        assert received.queue == queue.name

    @pytest.mark.parametrize(
        "text",
        [
            pytest.param("", id="empty"),
            pytest.param(" APPLICATION/Json; charset=UTF-8 ", id="unusual"),
            pytest.param("Žluť 🐎\r\n\t\x00", id="unicode"),
            pytest.param("x" * 300, id="long"),
            pytest.param("half \ud83d", id="half a surrogate pair"),
        ],
    )
    async def test_when_fields_hold_any_text_then_they_arrive_exactly(
        self, rig: Rig, text: str
    ) -> None:
        """R1, R63: a field that is there and empty is not one that is not. The tag of an encrypted
        body covers them, so a message whose fields are tidied up would be taken for forged.
        """
        queue = await rig.open_queue()
        sent = a_message(type=text, content_type=text, correlation_id=text, reply_to=text)

        await queue.send(sent)

        [received] = await queue.receive()
        assert received.message == sent

    @pytest.mark.parametrize(
        "body",
        [
            pytest.param(b"", id="empty"),
            pytest.param(bytes(range(256)), id="every byte"),
            pytest.param(b"\xff\xfe\x00" * 5_000, id="not text"),
            pytest.param("žluťoučký 🐎\r\n\x00".encode(), id="unicode"),
        ],
    )
    async def test_when_a_body_is_sent_then_its_bytes_arrive_exactly(
        self, rig: Rig, body: bytes
    ) -> None:
        """R1."""
        queue = await rig.open_queue()

        await queue.send(a_message(body, content_type="application/octet-stream"))

        [received] = await queue.receive()
        assert received.message.body == body

    async def test_when_headers_hold_any_text_then_they_arrive_exactly(self, rig: Rig) -> None:
        """R1, T11: also what a provider's own attributes could not carry."""
        queue = await rig.open_queue()
        headers = {
            "plain": "text",
            "empty": "",
            "Žluť 🐎": "naïve \u2028 🐎",
            "control": "tab\t newline\r\n bell\x07",
            "quotes": "\"'\\{}",
            **{f"many-{number}": str(number) for number in range(20)},
        }

        await queue.send(a_message(headers=headers))

        [received] = await queue.receive()
        assert dict(received.message.headers) == headers

    async def test_when_the_queue_does_not_exist_then_send_names_it_and_makes_none(
        self, rig: Rig
    ) -> None:
        """R2."""
        missing = rig.name("missing")

        with pytest.raises(QueueNotFound) as caught:
            await rig.gateway.producer(missing).send([a_message()])

        assert caught.value.queue == missing
        assert await rig.stats(missing) is None

    async def test_when_two_queues_exist_then_a_message_arrives_in_its_own_only(
        self, rig: Rig
    ) -> None:
        """R1."""
        orders = await rig.open_queue("orders")
        invoices = await rig.open_queue("invoices")
        sent = a_message()

        await orders.send(sent)

        assert await invoices.find_nothing()
        assert [each.message.id for each in await orders.take(2)] == [sent.id]

    async def test_when_more_is_sent_than_one_request_holds_then_all_arrive(self, rig: Rig) -> None:
        """R58: chunks by count and by bytes."""
        queue = await rig.open_queue()
        sent = [a_message(f"{number}:".encode() + b"x" * 4_000) for number in range(105)]

        ids = await queue.send(*sent)

        assert len(set(ids)) == len(sent)
        received = await queue.take_and_ack(len(sent) + 1)
        assert sorted(each.body for each in received) == sorted(each.body for each in sent)

    async def test_when_nothing_is_sent_then_nothing_arrives(self, rig: Rig) -> None:
        """R58."""
        queue = await rig.open_queue()

        ids = await queue.send()

        assert list(ids) == []
        assert await queue.find_nothing()

    async def test_when_a_body_is_too_large_then_the_send_says_so_and_sends_nothing_else(
        self, rig: Rig
    ) -> None:
        """R58: a partial failure names the message; a total one leaves nothing behind."""
        rig.needs("max_body_bytes")
        limit = rig.capabilities.max_body_bytes or 0
        queue = await rig.open_queue()
        small, large = a_message("small"), a_message(b"x" * (limit + 1))

        with pytest.raises((MessageTooLarge, SendFailed)) as caught:
            await queue.send(small, large)

        arrived = [each.id for each in await queue.take_and_ack(2)]
        if isinstance(caught.value, SendFailed):
            assert [message_id for message_id, _ in caught.value.failures] == [large.id]
            assert arrived == [small.id]
        else:
            assert arrived == []

    async def test_when_sent_with_a_delay_then_hidden_until_it_has_passed(self, rig: Rig) -> None:
        """R8: no receive sees it before its time, and its first delivery is the first attempt."""
        queue = await rig.open_queue()
        sent = a_message()

        await queue.send(sent, delay_s=2 * rig.tick_s)

        assert await queue.find_nothing()
        await rig.clock.advance(rig.tick_s)
        assert await queue.find_nothing()
        await rig.advance(rig.tick_s)
        [received] = await queue.receive()
        assert (received.message.id, received.attempt) == (sent.id, 1)

    async def test_when_one_message_is_delayed_then_others_pass_it(self, rig: Rig) -> None:
        """R37: without a guarantee a delay holds up no other message."""
        queue = await rig.open_queue()
        late, early = a_message("late"), a_message("early")
        # Long enough for a busy machine to look before it is over.
        await queue.send(late, delay_s=2 * rig.tick_s)

        await queue.send(early)

        assert [each.id for each in await queue.take_and_ack(2)] == [early.id]
        await rig.advance(2 * rig.tick_s)
        assert [each.id for each in await queue.take_and_ack(2)] == [late.id]


# Contract: one de-duplication id inside the window is one message.


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

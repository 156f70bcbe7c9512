"""Contract: what is sent arrives, exactly, once it is due, and nowhere else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

import pytest

from ...clock import yield_to_loop
from ...errors import MessageTooLarge, QueueNotFound, SendFailed
from ...message import Delivery
from ...outcome import Settlement
from ..builders import a_message, abandon, ack, defer
from .rig import ContractTests, Rig


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


# Contract: a receive returns as soon as it can, at its timeout at the latest, and a cancelled
# one hides nothing.


class ReceivingContract(ContractTests):
    """R3, R4: waiting, waking up, cancellation."""

    async def test_when_received_then_the_lease_starts_at_once(self, rig: Rig) -> None:
        """R3."""
        queue = await rig.open_queue()
        await queue.send(a_message())
        asked_at_s = rig.clock.now_s()

        [received] = await queue.receive()

        assert received.receipt
        assert received.attempt == 1
        received_at_s = rig.clock.now_s()
        assert asked_at_s + rig.lease_s - 1e-6 - rig.slack_s <= received.lease_expires_at_s
        assert received.lease_expires_at_s <= received_at_s + rig.lease_s + 1e-6
        assert await queue.find_nothing()

    async def test_when_the_queue_is_empty_then_receive_returns_nothing_at_its_timeout(
        self, rig: Rig
    ) -> None:
        """R4."""
        queue = await rig.open_queue()
        tolerance_s = 0.1 if rig.slack_s == 0 else rig.tick_s / 2

        waiting = queue.start_receive(wait_s=rig.tick_s)

        assert await rig.ends(waiting, within_s=rig.tick_s), rig.late(waiting)
        assert rig.took_s(waiting) >= rig.tick_s - tolerance_s
        assert await waiting == [], "an empty list, and not another kind of empty"

    async def test_when_asked_not_to_wait_then_an_empty_receive_returns_at_once(
        self, rig: Rig
    ) -> None:
        """R4."""
        queue = await rig.open_queue()

        waiting = queue.start_receive(wait_s=0.0)

        assert await rig.ends(waiting), rig.late(waiting)
        assert await waiting == [], "an empty list, and not another kind of empty"

    async def test_when_a_message_is_sent_then_a_waiting_receive_returns_it_at_once(
        self, rig: Rig
    ) -> None:
        """R4."""
        queue = await rig.open_queue()
        waiting = queue.start_receive(wait_s=rig.long_s)
        await rig.settle()
        sent = a_message()

        await queue.send(sent)

        assert await rig.ends(waiting), rig.late(waiting)
        assert [each.message.id for each in await waiting] == [sent.id]

    async def test_when_a_delay_ends_then_a_waiting_receive_returns_the_message(
        self, rig: Rig
    ) -> None:
        """R4: the wait ends with the delay, not with the timeout."""
        queue = await rig.open_queue()
        await queue.send(a_message(), delay_s=rig.tick_s)

        waiting = queue.start_receive(wait_s=rig.long_s)

        assert await rig.ends(waiting, within_s=rig.tick_s), rig.late(waiting)
        assert len(await waiting) == 1

    async def test_when_a_lease_ends_then_a_waiting_receive_returns_the_message(
        self, rig: Rig
    ) -> None:
        """R4, R8."""
        rig.needs("has_lease_expiry")
        queue = await rig.open_queue()
        await queue.send(a_message())
        await queue.receive()

        waiting = queue.start_receive(wait_s=rig.long_s)

        assert await rig.ends(waiting, within_s=rig.lease_s), rig.late(waiting)
        [again] = await waiting
        assert again.attempt == 2

    @pytest.mark.parametrize("give_back", [abandon, defer], ids=["abandon", "defer"])
    async def test_when_a_message_is_given_back_then_a_waiting_receive_returns_it_at_once(
        self, rig: Rig, give_back: Callable[[Delivery], Settlement]
    ) -> None:
        """R4, R11."""
        queue = await rig.open_queue()
        await queue.send(a_message())
        [first] = await queue.receive()
        waiting = queue.start_receive(wait_s=rig.long_s)
        await rig.settle()

        await queue.settle(give_back(first))

        assert await rig.ends(waiting), rig.late(waiting)
        assert [each.message.id for each in await waiting] == [first.message.id]

    async def test_when_a_message_comes_again_then_it_has_its_broker_id_and_a_copy_another(
        self, rig: Rig
    ) -> None:
        """T6: a replay can be told from a redelivery."""
        queue = await rig.open_queue()
        message = a_message()
        await queue.send(message)
        [first] = await queue.receive()
        await queue.settle(abandon(first))
        [again] = await queue.receive()

        await queue.send(message)
        [copy] = await queue.receive()

        assert copy.message.id == message.id
        assert first.broker_id is not None
        assert first.broker_id == again.broker_id != copy.broker_id

    async def test_when_fewer_are_asked_for_than_there_are_then_no_more_are_returned(
        self, rig: Rig
    ) -> None:
        """R3: the rest stays for others."""
        queue = await rig.open_queue()
        sent = [a_message() for _ in range(5)]
        await queue.send(*sent)

        first = await queue.receive(2)

        assert 1 <= len(first) <= 2
        others = await queue.take(5)
        assert len(first) + len(others) == 5

    async def test_when_more_are_asked_for_than_one_receive_returns_then_it_returns_some(
        self, rig: Rig
    ) -> None:
        """R3: the provider's batch size is the gateway's business, never an error."""
        queue = await rig.open_queue()
        await queue.send(*(a_message() for _ in range(3)))

        received = await queue.receive(rig.capabilities.receive_batch + 100)

        assert 1 <= len(received) <= 3
        assert not await queue.settle(*map(ack, received))

    async def test_when_the_queue_does_not_exist_then_receive_names_it_and_makes_none(
        self, rig: Rig
    ) -> None:
        """R2."""
        subscription = rig.subscription("missing")
        consumer = rig.gateway.consumer(subscription)

        with pytest.raises(QueueNotFound) as caught:
            await consumer.receive(max_count=1, wait_s=0.0)

        assert caught.value.queue == subscription.queue
        assert await rig.stats(subscription.queue) is None

    async def test_when_a_waiting_receive_is_cancelled_then_it_ends_at_once_and_takes_nothing(
        self, rig: Rig
    ) -> None:
        """R4; law 6: cancellation is never swallowed."""
        queue = await rig.open_queue()
        waiting = queue.start_receive(wait_s=rig.long_s)
        await rig.settle()

        waiting.cancel()

        assert await rig.ends(waiting), rig.late(waiting)
        assert waiting.cancelled()
        await queue.send(a_message())
        await rig.settle()
        [received] = await queue.receive()
        if rig.capabilities.has_uncounted_abandon:
            assert received.attempt == 1

    @pytest.mark.parametrize("turns", range(6))
    async def test_when_a_receive_is_cancelled_as_a_message_arrives_then_nothing_is_hidden(
        self, rig: Rig, turns: int
    ) -> None:
        """R4: leased but not returned means available again, wherever the cancellation falls."""
        queue = await rig.open_queue()
        sent = a_message()
        waiting = queue.start_receive(wait_s=rig.long_s)
        await rig.settle()

        await queue.send(sent)
        returned = await cancel_after(turns, waiting)
        await rig.settle()

        found = returned or await queue.receive()
        assert [each.message.id for each in found] == [sent.id]
        if rig.capabilities.has_uncounted_abandon:
            assert found[0].attempt == 1

    @pytest.mark.parametrize("turns", range(6))
    async def test_when_a_receive_is_cancelled_as_it_begins_then_nothing_is_hidden(
        self, rig: Rig, turns: int
    ) -> None:
        """R4: the same when the message was there before."""
        queue = await rig.open_queue()
        sent = [a_message(), a_message()]
        await queue.send(*sent)

        returned = await cancel_after(turns, queue.start_receive(wait_s=rig.tick_s, max_count=2))
        await rig.settle()

        found = [*returned, *await queue.take(2 - len(returned))]
        assert {each.message.id for each in found} == {each.id for each in sent}


async def cancel_after(
    turns: int, receiving: asyncio.Task[Sequence[Delivery]]
) -> Sequence[Delivery]:
    """Cancel a receive after so many turns of the loop, and return what it returned even so."""
    for _ in range(turns):
        await yield_to_loop()
    receiving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        return await receiving
    return []

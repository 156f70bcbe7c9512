"""Contract: a receive returns as soon as it can, at its timeout at the latest, and a cancelled
one hides nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

import pytest

from ...clock import yield_to_loop
from ...errors import QueueNotFound
from ...message import Delivery
from ...outcome import Settlement
from ..builders import a_message, abandon, ack, defer
from .base import ContractTests
from .rig import Rig


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

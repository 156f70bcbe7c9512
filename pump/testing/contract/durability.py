"""Contract: what a durable gateway accepted is there after it was closed and opened again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ...capabilities import Capabilities
from ...message import Delivery
from ...ports import Gateway
from ...subscription import MakeChannels
from ..another_process import ProcessAnswer
from ..builders import a_message, ack, defer
from .base import ContractTests
from .ordering import text
from .rig import Channel, Rig


class DurabilityContract(ContractTests):
    """R44, R45, T3, T4."""

    async def test_when_reopened_then_every_message_is_there_exactly_and_in_order(
        self, rig: Rig
    ) -> None:
        """R44, T3."""
        rig.needs("is_durable")
        queue = await rig.open_queue()
        sent = [
            a_message(
                bytes([number, 0, 255]),
                type=f"T{number}",
                correlation_id="correlation-1",
                reply_to="answers",
                created_at_s=1_750_000_000.125,
                headers={"Žluť 🐎": "naïve\r\n"},
            )
            for number in range(12)
        ]
        await queue.send(*sent)

        queue = await reopen(rig, queue)

        assert await queue.take_and_ack(13) == sent

    async def test_when_reopened_then_an_acked_message_does_not_come_back(self, rig: Rig) -> None:
        """R44, R5."""
        rig.needs("is_durable")
        queue = await rig.open_queue()
        await queue.send(*map(a_message, "ABC"))
        [first] = await queue.receive()
        await queue.settle(ack(first))

        queue = await reopen(rig, queue)

        await rig.advance(rig.lease_s)
        assert text(await queue.take_and_ack(4)) == "BC"

    async def test_when_reopened_then_what_was_in_flight_is_visible(self, rig: Rig) -> None:
        """R45, T4: its owner is gone; at the latest the lease runs out."""
        rig.needs("is_durable", "has_lease_expiry")
        queue = await rig.open_queue()
        await queue.send(a_message())
        [held] = await queue.receive()

        queue = await reopen(rig, queue)

        await rig.advance(rig.lease_s)
        [again] = await queue.receive()
        assert (again.message.id, again.attempt) == (held.message.id, 2)

    async def test_when_reopened_then_a_receipt_from_before_settles_nothing_of_others(
        self, rig: Rig
    ) -> None:
        """R9, R14: tokens are unique across restarts."""
        rig.needs("is_durable", "has_lease_expiry")
        queue = await rig.open_queue()
        await queue.send(a_message())
        [before] = await queue.receive()
        queue = await reopen(rig, queue)
        await rig.advance(rig.lease_s)
        [after] = await queue.receive()

        refused = await queue.settle(ack(before))

        assert after.receipt != before.receipt
        assert [refusal.delivery for refusal in refused] == [before]
        assert not await queue.settle(ack(after))

    async def test_when_reopened_then_a_delay_goes_on(self, rig: Rig) -> None:
        """R44, R8: of a send and of a deferral."""
        rig.needs("is_durable")
        queue = await rig.open_queue()
        await queue.send(a_message("deferred"))
        [received] = await queue.receive()
        await queue.settle(defer(received, seconds=4 * rig.tick_s))
        await queue.send(a_message("delayed"), delay_s=4 * rig.tick_s)

        queue = await reopen(rig, queue)

        await rig.clock.advance(2 * rig.tick_s)
        assert await queue.find_nothing()
        await rig.advance(2 * rig.tick_s)
        assert {each.body for each in await queue.take_and_ack(3)} == {b"deferred", b"delayed"}

    async def test_when_reopened_then_attempts_are_remembered(self, rig: Rig) -> None:
        """R17: never from a process's memory."""
        rig.needs("is_durable")
        queue = await rig.open_queue()
        await queue.send(a_message())
        for _ in range(2):
            [received] = await queue.receive()
            await queue.settle(defer(received))

        queue = await reopen(rig, queue)

        [again] = await queue.receive()
        assert again.attempt == 3

    async def test_when_reopened_then_a_duplicate_is_still_one(self, rig: Rig) -> None:
        """R39, R44."""
        rig.needs("is_durable", "has_deduplication")
        queue = await rig.open_ordered_queue()
        await queue.send(a_message(deduplication_id="order-1"))

        queue = await reopen(rig, queue)

        await queue.send(a_message(deduplication_id="order-1"))
        assert len(await queue.take_and_ack(2)) == 1

    async def test_when_reopened_then_a_dead_letter_is_in_its_queue_only(self, rig: Rig) -> None:
        """R20, R44."""
        rig.needs("is_durable", "has_native_redrive")
        queue = await rig.open_queue(dead_letter_queue=rig.name("dead"), max_receive_count=1)
        await queue.send(a_message())
        [received] = await queue.receive()
        await queue.settle(defer(received))

        queue = await reopen(rig, queue)

        await rig.advance(rig.lease_s)
        assert await queue.find_nothing()
        assert len(await queue.dead_letters.take_and_ack(2)) == 1

    async def test_when_reopened_then_a_queue_keeps_its_settings(self, rig: Rig) -> None:
        """R44, R22: also where it is only validated."""
        rig.needs("is_durable", "has_native_redrive")
        queue = await rig.open_queue(dead_letter_queue=rig.name("dead"), max_receive_count=2)

        queue = await reopen(rig, queue)

        for spec in queue.subscription.queue_specs():
            await rig.admin.ensure(spec, MakeChannels.VALIDATE)
        await queue.send(a_message())
        for _ in range(2):
            [received] = await queue.receive()
            await queue.settle(defer(received))
        await rig.let_redrive(queue)
        assert len(await queue.dead_letters.take_and_ack(2)) == 1

    async def test_when_purged_and_reopened_then_the_queue_is_empty(self, rig: Rig) -> None:
        """R44."""
        rig.needs("is_durable", "has_purge")
        queue = await rig.open_queue()
        await queue.send(a_message())
        await rig.admin.purge(queue.name)

        queue = await reopen(rig, queue)

        await rig.advance(rig.lease_s)
        assert await queue.find_nothing()


async def reopen(rig: Rig, queue: Channel) -> Channel:
    """Close the gateway, open another one on its storage, and open the queue there."""
    await rig.reopen()
    return rig.channel(queue.subscription)


# Contract: opening and closing can be repeated, and asking for a port does no I/O.


class LifecycleContract(ContractTests):
    """R55, R76 and the ports' own promises."""

    async def test_when_looked_at_then_it_is_a_gateway_that_names_itself(self, rig: Rig) -> None:
        """R55, R76."""
        capabilities = rig.gateway.capabilities

        assert isinstance(rig.gateway, Gateway)
        assert isinstance(capabilities, Capabilities)
        assert capabilities.gateway

    async def test_when_opened_twice_then_nothing_is_lost(self, rig: Rig) -> None:
        """R55."""
        queue = await rig.open_queue()
        await queue.send(a_message())

        await rig.gateway.open()

        assert len(await queue.take_and_ack(2)) == 1

    async def test_when_closed_twice_then_nothing_is_raised(self, rig: Rig) -> None:
        """R55."""
        queue = await rig.open_queue()
        await queue.consumer.aclose()
        await queue.producer.aclose()

        await rig.gateway.aclose()

        await queue.consumer.aclose()
        await queue.producer.aclose()
        await rig.gateway.aclose()

    async def test_when_ports_are_asked_for_then_no_queue_is_made_or_asked(self, rig: Rig) -> None:
        """R31, R55: the first operation finds out."""
        subscription = rig.subscription("missing")

        rig.gateway.consumer(subscription)
        rig.gateway.producer(subscription.queue)

        assert await rig.stats(subscription.queue) is None


# Contract: a gateway that says it is shared is reached from another process, and one that says
# it spans machines needs nothing of this machine for it.


class SharingContract(ContractTests):
    """`Capabilities.is_shared` and `spans_machines`."""

    async def test_when_it_is_shared_then_another_process_reaches_its_queues(
        self, rig: Rig
    ) -> None:
        """Port: `Capabilities.is_shared`; what one process holds is hidden from the other."""
        rig.needs("is_shared")
        if rig.capabilities.spans_machines:
            pytest.skip("spans_machines says more, and is tested")

        await meet_in_another_process(rig)

    async def test_when_it_spans_machines_then_another_process_needs_nothing_of_this_one(
        self, rig: Rig
    ) -> None:
        """Port: `Capabilities.spans_machines`; no file, database or socket of this machine."""
        rig.needs("spans_machines")

        found = await meet_in_another_process(rig)

        assert found.local == (), (
            "it declares spans_machines, but another process reached the queue through "
            f"{', '.join(found.local)}, which another machine does not have"
        )


async def meet_in_another_process(rig: Rig) -> ProcessAnswer:
    """Hold one message here, have another handled there, and receive the answer."""
    if rig.is_simulated:
        pytest.skip("the provider is a model inside this process")
    # Long: on a busy machine an interpreter takes seconds to start.
    queue = await rig.open_queue(lease=timedelta(seconds=20 * rig.lease_s))
    held = await _held(queue)
    sent = a_message("there")
    await queue.send(sent)

    found = await rig.reach_elsewhere(queue)

    assert found.received == (sent.id,), (
        f"{rig.capabilities.gateway} declares is_shared, but of the message {sent.id} sent here "
        f"another process received {list(found.received) or 'nothing'}"
    )
    assert found.refused == 0
    assert [each.id for each in await queue.take_and_ack(1)] == [found.sent]
    assert not await queue.settle(ack(held))
    return found


async def _held(queue: Channel) -> Delivery:
    await queue.send(a_message("held"))
    [held] = await queue.receive()
    return held

"""Contract: what a durable gateway accepted is there after it was closed and opened again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import TypeVar

import pytest

from ...backoff import Backoff
from ...capabilities import Capabilities
from ...clock import yield_to_loop
from ...errors import ConnectionFailed, GatewayError, SendFailed
from ...message import Delivery
from ...outcome import Settlement
from ...ports import Gateway
from ...subscription import MakeChannels, hybrid
from ..another_process import ProcessAnswer
from ..builders import a_message, ack, defer
from .ordering import text
from .rig import Channel, ContractTests, Rig
from .workshop import Job, Workshop, current_message_id


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


# Contract: a network that fails loses nothing, and work goes on when it is back.
#
# Needs a rig with `behind_network`: a second gateway, whose connections the test may cut.

T = TypeVar("T")

_TRIES = 200


class ResilienceContract(ContractTests):
    """R51; laws 1, 2 and 7."""

    async def test_when_connections_are_severed_again_and_again_then_the_pump_handles_everything(
        self, rig: Rig
    ) -> None:
        """R51: in the middle of sends, of receives and of settles; nothing starts it again."""
        handled: set[str] = set()
        async with rig.networked() as (gateway, network):

            async def handle(job: Job) -> None:
                if current_message_id() not in handled and len(handled) % 12 == 6:
                    network.sever()
                handled.add(current_message_id())

            pause = timedelta(seconds=rig.tick_s / 10)
            shop = Workshop(
                rig,
                handle,
                gateway=gateway,
                dead_letter_queue=rig.name("dead"),
                failure=hybrid(50, backoff=Backoff(initial=pause, maximum=pause)),
                # What is held by a connection that is gone comes again at its end at the latest.
                lease=timedelta(seconds=rig.lease_s),
            )
            ids: list[str] = []
            async with shop.working() as dispatcher:
                for number in range(60):
                    if number % 12 == 0:
                        network.sever()
                    ids += await surely(rig, lambda: shop.post("work"))
                await shop.until(lambda: handled >= set(ids))
                [performer] = dispatcher.performers

        assert performer.stats.restarts == 0

    async def test_when_the_network_is_away_then_calls_say_so_and_go_on_when_it_is_back(
        self, rig: Rig
    ) -> None:
        """R51: the same ports."""
        async with rig.networked() as (gateway, network):
            queue = await rig.open_queue()
            cut = rig.channel(queue.subscription, gateway)
            before, lost, after = a_message("before"), a_message("lost"), a_message("after")
            await cut.send(before)

            network.shut()
            with pytest.raises((ConnectionFailed, SendFailed)):
                await cut.send(lost)
            with pytest.raises(ConnectionFailed):
                await cut.find_nothing()
            with pytest.raises(ConnectionFailed):
                await gateway.admin().stats(queue.name)
            network.let_in()
            await surely(rig, lambda: cut.send(after))

            received = await surely(rig, cut.receive)
            received += await cut.receive()
            assert [each.message.id for each in received] == [before.id, after.id]
            assert not await surely(rig, lambda: cut.settle(*map(ack, received)))

    async def test_when_the_connection_is_severed_then_what_is_in_hand_is_ours_or_comes_again(
        self, rig: Rig
    ) -> None:
        """R9, R51; law 1: where leases end with their connection, the old receipt is refused."""
        async with rig.networked() as (gateway, network):
            queue = await rig.open_queue(lease=timedelta(seconds=10 * rig.lease_s))
            cut = rig.channel(queue.subscription, gateway)
            await cut.send(a_message())
            [held] = await cut.receive()

            network.sever()
            if rig.leases_outlive_connections:
                assert not await surely(rig, lambda: cut.extend(held, lease_s=10 * rig.lease_s))
                assert await settled(rig, cut, [ack(held)]) == {held.message.id}
                assert await queue.find_nothing()
                return

            # What follows meets a connection that is known to be gone.
            [again] = await surely(rig, cut.receive)
            [refusal] = await cut.settle(ack(held))
            assert refusal.is_final
            assert (again.message.id, again.attempt) == (held.message.id, 2)
            assert not await cut.settle(ack(again))

    async def test_when_the_connection_is_severed_while_a_receive_waits_then_the_receive_says_so(
        self, rig: Rig
    ) -> None:
        """R51: at once, not at the end of its wait; and what it left behind takes nothing."""
        async with rig.networked() as (gateway, network):
            queue = await rig.open_queue()
            cut = rig.channel(queue.subscription, gateway)
            assert await cut.find_nothing()
            waiting = cut.start_receive(wait_s=rig.long_s)
            await rig.settle()

            network.sever()
            assert await rig.ends(waiting), rig.late(waiting)
            with pytest.raises(ConnectionFailed):
                await waiting

            sent = a_message()
            await queue.send(sent)
            assert [each.message.id for each in await queue.receive()] == [sent.id]

    @pytest.mark.parametrize("settle", [ack, defer], ids=["ack", "defer"])
    @pytest.mark.parametrize("turns", [1, 4])
    async def test_when_the_connection_is_severed_in_the_middle_of_a_settle_then_nothing_is_lost(
        self, rig: Rig, settle: Callable[[Delivery], Settlement], turns: int
    ) -> None:
        """R51; laws 1 and 2: asked again, each is settled, or the message comes again."""
        async with rig.networked() as (gateway, network):
            queue = await rig.open_queue(lease=timedelta(seconds=10 * rig.lease_s))
            cut = rig.channel(queue.subscription, gateway)
            sent = [a_message(str(number)) for number in range(20)]
            await cut.send(*sent)
            received: list[Delivery] = []
            while len(received) < len(sent):
                received += await cut.receive(len(sent) - len(received))

            settling = rig.start(settled(rig, cut, [*map(settle, received)]))
            for _ in range(turns):
                await yield_to_loop()
            network.sever()
            settled_ids = await settling
            done = settled_ids if settle is ack else set()

            left: set[str] = set()
            while left | done != {each.id for each in sent}:
                again = await surely(rig, lambda: cut.receive(len(sent)))
                assert again, f"only {len(left)} of {len(sent)} came again"
                left.update(each.message.id for each in again)
            assert left.isdisjoint(done)


async def surely(rig: Rig, work: Callable[[], Awaitable[T]]) -> T:
    """What a call returns once it succeeds, as a careful caller makes it: again."""
    for _ in range(_TRIES):
        try:
            return await work()
        except (GatewayError, SendFailed):
            await rig.clock.advance(rig.tick_s / 30)
    return await work()


async def settled(rig: Rig, queue: Channel, settlements: Sequence[Settlement]) -> set[str]:
    """Settle as a pump does it, again while that may help; the ids of what was not refused."""
    ids = {each.delivery.message.id for each in settlements}
    for _ in range(_TRIES):
        refusals = await surely(rig, partial(queue.settle, *settlements))
        ids -= {each.delivery.message.id for each in refusals if each.is_final}
        left = {each.delivery for each in refusals if not each.is_final}
        settlements = [each for each in settlements if each.delivery in left]
        if not settlements:
            return ids
        await rig.clock.advance(rig.tick_s / 30)
    raise AssertionError("never settled")

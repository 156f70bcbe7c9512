"""Contract: a network that fails loses nothing, and work goes on when it is back.

Needs a rig with `behind_network`: a second gateway, whose connections the test may cut.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import TypeVar

import pytest

from ...backoff import Backoff
from ...clock import yield_to_loop
from ...errors import ConnectionFailed, GatewayError, SendFailed
from ...message import Delivery
from ...outcome import Settlement
from ...subscription import hybrid
from ..builders import a_message, ack, defer
from .base import ContractTests
from .rig import Channel, Rig
from .workshop import Job, Workshop, id_in_hand

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
                if id_in_hand() not in handled and len(handled) % 12 == 6:
                    network.sever()
                handled.add(id_in_hand())

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

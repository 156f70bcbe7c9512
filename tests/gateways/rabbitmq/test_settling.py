"""Settling when something unforeseen happens: no lease is lost sight of."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import pamqp.frame
import pytest
from pamqp.commands import Basic

from gateways.rabbitmq.amqp import Channel
from gateways.rabbitmq.settling import Outstanding, RabbitMQLease, RabbitMQSettling, Terms
from gateways.rabbitmq.topology import Topology
from gateways.rabbitmq.wire import Parcel, attempt_of
from pump.clock import yield_to_loop
from pump.errors import PumpError, Throttled
from pump.message import Delivery
from pump.outcome import ABANDON, Defer, Settlement
from pump.testing import VirtualClock
from pump.testing.builders import a_delivery, ack

from .fake_channel import FakeChannel


class BrokenTopology:
    """Fails in a way that nobody has thought of."""

    async def publish(self, *_: object, **__: object) -> list[None]:
        raise TypeError("what is this")


class TellingTopology:
    """Takes copies, or refuses them."""

    def __init__(self, fate: PumpError | None) -> None:
        self.fate = fate
        self.copies: list[Parcel] = []
        self.taking: Callable[[], Awaitable[None]] = yield_to_loop

    def confirms_after(self, clock: VirtualClock, seconds: float) -> None:
        """Take so long for each."""
        self.taking = lambda: clock.sleep(seconds)

    async def publish(
        self, queue: str, parcels: Sequence[Parcel], *, delay_s: float
    ) -> list[PumpError | None]:
        self.copies += parcels
        await self.taking()
        return [self.fate] * len(parcels)


@pytest.mark.parametrize(
    ("fate", "max_receive_count", "told"),
    [
        (None, None, Basic.Ack),
        (Throttled("queue 'orders'"), None, Basic.Nack),
        (Throttled("queue 'orders'"), 3, None),
    ],
    ids=["the copy is taken", "it is not", "it is not, and this was the last delivery"],
)
async def test_when_a_delivery_is_abandoned_then_a_copy_goes_back_that_has_the_attempts_it_had(
    fate: PumpError | None, max_receive_count: int | None, told: type | None
) -> None:
    """T5: the broker would count it; it does where the copy is not taken, unless it were to
    dead-letter the message for it.
    """
    clock = VirtualClock()
    topology = TellingTopology(fate)
    settling = RabbitMQSettling(
        "orders", cast(Topology, topology), address="amqp://broker", clock=clock
    )
    channel = FakeChannel()
    terms = Terms(
        lease_s=30,
        max_lease_s=600,
        max_receive_count=max_receive_count,
        dead_letter_queue="dead",
    )
    delivery = a_delivery(attempt=3)
    settling.leases.hold(delivery.receipt, a_lease(delivery, channel, terms, clock.now_s()))

    refusals = await settling.settle([Settlement(delivery, ABANDON)])

    [copy] = topology.copies
    assert attempt_of(copy, queue="orders", is_redelivered=False) == 3
    if told is None:
        assert [refusal.is_final for refusal in refusals] == [False]
        assert channel.write_queue.empty()
    else:
        assert refusals == []
        _, _, frame = pamqp.frame.unmarshal(channel.written())
        assert type(frame) is told
    await settling.aclose()


async def test_when_a_settlement_takes_long_then_its_lease_can_be_extended_meanwhile() -> None:
    """Law 3: the message is still ours, and the pump must not take it for lost."""
    clock = VirtualClock()
    topology = TellingTopology(None)
    settling = RabbitMQSettling(
        "orders", cast(Topology, topology), address="amqp://broker", clock=clock
    )
    delivery = a_delivery()
    terms = Terms(lease_s=30, max_lease_s=600)
    settling.leases.hold(delivery.receipt, a_lease(delivery, FakeChannel(), terms, clock.now_s()))
    topology.confirms_after(clock, 40)
    settled = asyncio.create_task(settling.settle([Settlement(delivery, Defer(5.0))]))
    await clock.advance(20)

    assert await settling.extend([delivery], 30) == []
    await clock.advance(20)

    assert await settled == []
    await settling.aclose()


def a_lease(delivery: Delivery, channel: FakeChannel, terms: Terms, now_s: float) -> RabbitMQLease:
    outstanding = Outstanding()
    outstanding.add(1)
    held = cast("Channel", channel)
    parcel = Parcel(body=b"x")
    return RabbitMQLease(
        now_s + terms.lease_s,
        delivery=delivery,
        parcel=parcel,
        channel=held,
        outstanding=outstanding,
        tag=1,
        terms=terms,
        received_at_s=now_s,
    )


async def test_when_a_settlement_breaks_then_the_lease_can_still_be_settled_or_run_out() -> None:
    """Kept as taken, the message would be hidden until the connection dies."""
    clock = VirtualClock()
    settling = RabbitMQSettling(
        "orders", cast(Topology, BrokenTopology()), address="amqp://broker", clock=clock
    )
    delivery = a_delivery()
    terms = Terms(lease_s=30, max_lease_s=600)
    settling.leases.hold(delivery.receipt, a_lease(delivery, FakeChannel(), terms, clock.now_s()))
    with pytest.raises(TypeError):
        await settling.settle([Settlement(delivery, Defer(5.0))])

    assert await settling.settle([ack(delivery)]) == []
    await settling.aclose()

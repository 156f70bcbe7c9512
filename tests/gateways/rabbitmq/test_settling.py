"""Settling when something unforeseen happens: no lease is lost sight of."""

from __future__ import annotations

from typing import cast

import pytest

import gateways.rabbitmq.amqp  # noqa: F401  (as opening a gateway does: not on the loop)
from gateways.rabbitmq.leases import Lease, Terms
from gateways.rabbitmq.outstanding import Outstanding
from gateways.rabbitmq.settling import Settling
from gateways.rabbitmq.topology import Topology
from gateways.rabbitmq.wire import Parcel
from pump.outcome import Defer, Settlement
from pump.testing import VirtualClock
from pump.testing.builders import a_delivery, ack

from .fake_channel import FakeChannel


class BrokenTopology:
    """Fails in a way that nobody has thought of."""

    async def publish(self, *_: object, **__: object) -> list[None]:
        raise TypeError("what is this")


async def test_when_a_settlement_breaks_then_the_lease_can_still_be_settled_or_run_out() -> None:
    """Kept as taken, the message would be hidden until the connection dies."""
    clock = VirtualClock()
    settling = Settling(
        "orders", cast(Topology, BrokenTopology()), address="amqp://broker", clock=clock
    )
    delivery = a_delivery()
    channel, outstanding = FakeChannel(), Outstanding()
    outstanding.add(1)
    now_s = clock.now_s()
    settling.hold(
        Lease(
            delivery,
            Parcel(body=b"x"),
            channel,  # type: ignore[arg-type]
            outstanding,
            1,
            Terms(lease_s=30, max_lease_s=600),
            now_s,
            now_s + 30,
        )
    )
    with pytest.raises(TypeError):
        await settling.settle([Settlement(delivery, Defer(5.0))])

    assert await settling.settle([ack(delivery)]) == []
    await settling.aclose()

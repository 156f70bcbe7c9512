"""Contract: opening and closing can be repeated, and asking for a port does no I/O."""

from __future__ import annotations

from ...capabilities import Capabilities
from ...ports import Gateway
from ..builders import a_message
from .base import ContractTests
from .rig import Rig


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

"""Contract: a gateway that says it is shared is reached from another process, and one that says
it spans machines needs nothing of this machine for it.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from ...message import Delivery
from ..another_process import ProcessAnswer
from ..builders import a_message, ack
from .base import ContractTests
from .rig import Channel, Rig


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

"""Whatever is asked of a pump, in whatever order: each message is handled once or still there."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from hypothesis import given, settings, strategies as st

from pump.clock import yield_to_loop
from pump.outcome import ACK
from pump.performer import PumpState

from ..core.notes import Defect
from ..core.rig import Rig, Work, receipts_settled

pytestmark = pytest.mark.usefixtures("quiet")

STEPS = st.lists(
    st.sampled_from(
        ["pause", "resume", "drain", "scale 1", "scale 7", "send", "send", "break", "turn", "wait"]
    ),
    max_size=25,
)


@given(steps=STEPS, run_s=st.sampled_from([0.0, 0.4, 20.0]))
@settings(max_examples=60)
def test_when_controlled_at_random_then_nothing_is_lost_or_done_twice(
    steps: list[str], run_s: float
) -> None:
    """Laws 1, 5 and 6. A pump that breaks gives back what it holds, so only then may a message
    be started again.
    """
    asyncio.run(_play(steps, run_s))


async def _play(steps: list[str], run_s: float) -> None:
    async def work(request: Work) -> None:
        await rig.clock.sleep(run_s)

    # Longer than any handler: what a drain has to cancel is started again.
    rig = Rig(work, concurrency=2, prefetch=3, drain_timeout=timedelta(minutes=1))
    sent = 0
    async with rig:
        await rig.start()
        for step in steps:
            match step.split():
                case ["send"]:
                    await rig.send(sent, sent + 1)
                    sent += 2
                case ["break"]:
                    rig.gateway.fail("receive", Defect("bug"), times=1)
                case ["turn"]:
                    await yield_to_loop()
                case ["wait"]:
                    await rig.clock.advance(1)
                case ["scale", count]:
                    rig.dispatcher.scale("orders", int(count))
                case [action]:
                    getattr(rig.dispatcher, action)("orders")
            _check(rig)
        rig.gateway.heal("receive")
        rig.dispatcher.resume("orders")
        await rig.clock.advance(120 + sent * run_s)

        assert rig.dispatcher.performers[0].state == PumpState.RUNNING
        assert set(rig.ended) == set(range(sent))
        assert await rig.total() == 0
        acked = [delivery for delivery, action in rig.record.settled if action == ACK]
        assert len(acked) == sent
        assert set(receipts_settled(each for each, _ in rig.record.settled).values()) <= {1}
        if "break" not in steps:
            assert len(rig.started) == sent
        await rig.drain()
        assert rig.running is not None
        assert rig.running.done()


def _check(rig: Rig) -> None:
    """The states without a pump have none."""
    [performer] = rig.dispatcher.performers
    if performer.state in (PumpState.DRAINED, PumpState.FAILED, PumpState.STARTING):
        assert performer.pump is None

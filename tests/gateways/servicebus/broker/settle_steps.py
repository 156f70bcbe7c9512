"""Settling as the pump does it."""

from __future__ import annotations

from collections.abc import Sequence

from pump.outcome import Settlement
from pump.ports import ConsumerPort


async def settle_until_final(consumer: ConsumerPort, settlements: Sequence[Settlement]) -> int:
    """Settle as the pump does it, again while that may help; how many were refused for good."""
    lost_count = 0
    for _ in range(5):
        refusals = await consumer.settle(settlements)
        lost_count += sum(refusal.is_final for refusal in refusals)
        left = {refusal.delivery for refusal in refusals if not refusal.is_final}
        settlements = [each for each in settlements if each.delivery in left]
        if not settlements:
            return lost_count
    raise AssertionError("never settled")

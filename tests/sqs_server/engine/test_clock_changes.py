"""A clock that was set back between two lives of a server stretches nothing."""

from __future__ import annotations

from pathlib import Path

from gateways.sqs_server.engine import SqsStore
from pump.testing.virtual_clock import VirtualClock

from .shop import Shop

MONTH_S = 30 * 86_400.0


class WrongClock(VirtualClock):
    """Its Unix time is a month behind, as after the correction of a wrong hardware clock."""

    def time_s(self) -> float:
        return super().time_s() - MONTH_S


async def test_when_the_clock_was_set_back_then_a_delay_lasts_as_long_as_it_was_meant_to(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """T4."""
    shop = await Shop.open(clock, SqsStore(tmp_path))
    await shop.make("orders")
    await shop.send("short", delay_s=10)
    await shop.send("long", delay_s=900)
    await shop.engine.aclose()

    behind = WrongClock()
    again = await Shop.open(behind, SqsStore(tmp_path))
    again.use("orders")
    assert again.counts() == (0, 0, 2)
    await behind.advance(10)
    assert await again.bodies() == ["short"]
    await behind.advance(890)

    assert "long" in await again.bodies()
    await again.engine.aclose()


async def test_when_the_clock_was_set_back_then_an_id_is_free_again_after_five_minutes(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """T4."""
    shop = await Shop.open(clock, SqsStore(tmp_path))
    await shop.make("orders.fifo")
    [original] = await shop.send_fifo("1")
    await shop.engine.aclose()

    behind = WrongClock()
    again = await Shop.open(behind, SqsStore(tmp_path))
    again.use("orders.fifo")
    [duplicate] = await again.send_fifo("1")
    await behind.advance(300)
    [another] = await again.send_fifo("1")

    assert duplicate.id == original.id
    assert another.id != original.id
    await again.engine.aclose()

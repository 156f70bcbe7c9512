"""Clocks that jump, and names that are used again at the wrong moment."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gateways.sqs_server.engine import open_store
from pump.testing.virtual_clock import VirtualClock

from ..engine.shop import PatientStore, Shop, redrive

MONTH_S = 30 * 86_400


class WrongClock(VirtualClock):
    """Its Unix time is off, as before a machine has asked a time server."""

    def __init__(self, *, off_s: float = 0.0) -> None:
        super().__init__()
        self._off_s = off_s

    def time_s(self) -> float:
        return super().time_s() + self._off_s


async def test_when_the_clock_is_set_back_then_a_delay_ends_all_the_same(tmp_path: Path) -> None:
    """T4: no delay lasts longer than SQS's longest, whatever the clock was when it began."""
    shop = await Shop.open(WrongClock(off_s=MONTH_S), open_store(tmp_path))
    await shop.make("queue")
    await shop.send("delayed", delay_s=10)
    await shop.engine.aclose()

    shop = await Shop.open(WrongClock(), open_store(tmp_path))
    shop.use("queue")
    await shop.clock.advance(900)

    assert await shop.bodies() == ["delayed"]
    await shop.engine.aclose()


async def test_when_the_clock_is_set_back_then_ids_are_forgotten_all_the_same(
    tmp_path: Path,
) -> None:
    """T4: a window of five minutes that lasts a month loses what is sent in it."""
    shop = await Shop.open(WrongClock(off_s=MONTH_S), open_store(tmp_path))
    await shop.make("line.fifo")
    await shop.send_fifo("one")
    await shop.engine.aclose()

    shop = await Shop.open(WrongClock(), open_store(tmp_path))
    shop.use("line.fifo")
    await shop.clock.advance(300)
    await shop.send_fifo("one")

    assert shop.counts() == (2, 0, 0)
    await shop.engine.aclose()


async def test_when_a_queue_is_made_anew_then_the_move_task_of_the_old_one_leaves_it_alone() -> (
    None
):
    clock = VirtualClock()
    shop = await Shop.open(clock)
    target = await shop.make("target")
    dead = await shop.make("dead")
    await shop.make("source", redrive=redrive("dead", 1))
    shop.use("dead")
    await shop.send(*"123456789")
    await shop.engine.start_move(dead, target, rate=1)
    await clock.settle()

    await shop.engine.delete_queue(dead)
    await shop.make("dead")
    await shop.send("another")
    await clock.advance(5)

    assert shop.counts() == (1, 0, 0)
    await shop.engine.aclose()


async def test_when_a_message_is_sent_during_a_purge_then_its_id_is_still_remembered() -> None:
    """T4: memory and file agree on which ids were seen."""
    store = PatientStore()
    shop = await Shop.open(VirtualClock(), store)
    await shop.make("line.fifo")

    store.hold()
    purging = await shop.begin(shop.engine.purge(shop.queue))
    sending = await shop.begin(shop.send_fifo("one"))
    store.release()
    await asyncio.gather(purging, sending)
    await shop.send_fifo("one")

    assert shop.counts() == (1, 0, 0)
    await shop.engine.aclose()

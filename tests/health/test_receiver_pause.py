"""The receiver, paused: the races of one turn of the loop."""

from __future__ import annotations

import asyncio

from pump.errors import ConnectionFailed

from ..loop.test_receiver import WAIT_S, Bench


def counts(bench: Bench) -> list[int]:
    return [count for _, count in bench.broker.asked]


async def test_when_paused_in_the_turn_in_which_room_was_made_then_no_receive_begins() -> None:
    bench = Bench(in_flight=10, stock=1_000)
    await bench.clock.settle()
    assert counts(bench) == [10]

    bench.receiver.give_back(4)
    bench.receiver.pause()
    await bench.clock.advance(100)

    assert counts(bench) == [10]
    assert bench.receiver.in_flight == 6
    await bench.stop()


async def test_when_resumed_between_a_pollers_turn_and_its_recall_then_it_goes_on() -> None:
    """The poller saw the pause and waits; the pause is over before anyone has recalled it."""
    bench = Bench(in_flight=10, stock=1_000)
    await bench.clock.settle()

    bench.receiver.give_back(4)
    asyncio.get_running_loop().call_soon(bench.receiver.resume)
    bench.receiver.pause()
    await bench.clock.settle()

    assert counts(bench) == [10, 4]
    await bench.stop()


async def test_when_paused_then_every_credit_of_an_open_receive_is_back() -> None:
    bench = Bench(in_flight=25, max_pollers=4, stock=10)
    await bench.clock.settle()
    assert bench.receiver.in_flight == 25

    bench.receiver.pause()
    await bench.clock.settle()

    assert bench.broker.under_way == 0
    assert bench.receiver.in_flight == len(bench.received) == 10
    await bench.stop()


async def test_when_resumed_then_one_poller_begins_however_many_there_were() -> None:
    bench = Bench(in_flight=1_000, max_pollers=4, stock=30)
    await bench.clock.settle()
    assert bench.broker.under_way == 4
    bench.receiver.pause()
    await bench.clock.settle()

    bench.broker.most_under_way = 0
    bench.receiver.resume()
    await bench.clock.advance(3 * WAIT_S)

    assert bench.broker.most_under_way == 1
    await bench.stop()


async def test_when_paused_while_a_poller_backs_off_then_it_does_not_ask_after_that() -> None:
    bench = Bench(in_flight=10)
    bench.broker.errors = [ConnectionFailed("broker", "away")] * 3
    await bench.clock.settle()
    assert len(bench.broker.asked) == 1

    bench.receiver.pause()
    await bench.clock.advance(100)
    assert len(bench.broker.asked) == 1

    bench.receiver.resume()
    await bench.clock.advance(10)
    assert len(bench.broker.asked) > 1
    await bench.stop()


async def test_when_cancelled_while_paused_then_it_ends() -> None:
    bench = Bench(in_flight=10)
    bench.receiver.pause()
    await bench.clock.settle()

    await bench.stop()


async def test_when_paused_before_it_runs_then_it_asks_for_nothing() -> None:
    bench = Bench(in_flight=10, stock=100)
    bench.receiver.pause()
    await bench.clock.advance(100)
    assert bench.broker.asked == []

    bench.receiver.resume()
    await bench.clock.settle()

    assert len(bench.received) == 10
    await bench.stop()

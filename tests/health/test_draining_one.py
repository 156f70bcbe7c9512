"""Draining one subscription: it ends as a drain ends (law 5), the others do not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from pump.errors import ConnectionFailed
from pump.event_loop import run_until_signalled
from pump.outcome import ABANDON, ACK
from pump.ports import ConsumerPort

from ..core.notes import Defect, Note, with_notes
from ..core.rig import Gate, Rig

pytestmark = pytest.mark.usefixtures("quiet")


async def test_when_one_is_drained_then_it_finishes_hands_back_and_stops_and_others_go_on() -> None:
    """Law 5."""
    gate = Gate()
    rig = Rig(gate, concurrency=2, prefetch=3)
    noted = with_notes(rig)
    async with rig:
        await rig.send(*range(10))
        await rig.start()
        rig.dispatcher.drain("orders")
        await rig.clock.settle()
        assert rig.dispatcher.performers[0].state == "draining"
        assert (await rig.depth()).visible == 8

        gate.open()
        await rig.clock.settle()
        await rig.app.post(Note(n=5))
        await rig.clock.advance(300)

        assert [each.state for each in rig.dispatcher.performers] == ["drained", "running"]
        assert sorted(rig.ended) == [0, 1]
        assert noted == [5]
        actions = [action for _, action in rig.record.settled]
        assert actions.count(ABANDON) == 3
        assert actions.count(ACK) == 3
        stats = await rig.depth()
        assert (stats.visible, stats.in_flight) == (8, 0)


async def test_when_a_handler_does_not_finish_then_the_drain_timeout_ends_it() -> None:
    """Law 6."""
    rig = Rig(Gate(), drain_timeout=timedelta(seconds=5))
    with_notes(rig)
    async with rig:
        await rig.send(1)
        await rig.start()
        rig.dispatcher.drain("orders")
        await rig.clock.advance(6)

        assert rig.cancelled == [1]
        assert [each.state for each in rig.dispatcher.performers] == ["drained", "running"]
        assert (await rig.depth()).visible == 1


async def test_when_a_drained_one_is_resumed_then_it_starts_again() -> None:
    async with Rig() as rig:
        await rig.start()
        rig.dispatcher.drain("orders")
        await rig.clock.settle()
        await rig.send(1)
        await rig.clock.advance(300)
        assert rig.started == []

        rig.dispatcher.resume("orders")
        await rig.clock.settle()

        assert rig.ended == [1]
        assert rig.states == ["running", "draining", "drained", "running"]
        assert rig.dispatcher.performers[0].stats.restarts == 0


async def test_when_all_are_drained_by_name_then_the_dispatcher_still_runs() -> None:
    async with Rig() as rig:
        await rig.start()
        rig.dispatcher.drain("orders")
        await rig.clock.advance(300)
        assert rig.running is not None
        assert not rig.running.done()

        await rig.finish()

        assert rig.states == ["running", "draining", "drained", "stopped"]


async def test_when_resumed_while_it_drains_then_it_starts_anew_once_drained() -> None:
    gate = Gate()
    async with Rig(gate, concurrency=1, prefetch=2) as rig:
        await rig.send(1, 2, 3)
        await rig.start()
        rig.dispatcher.drain("orders")
        await rig.clock.settle()
        rig.dispatcher.resume("orders")
        await rig.clock.advance(1)
        assert rig.started == [1], "a drain is not taken back"

        gate.open()
        await rig.clock.advance(1)

        assert sorted(rig.ended) == [1, 2, 3]
        assert rig.states == ["running", "draining", "running"]
        assert await rig.total() == 0


@pytest.mark.parametrize(
    ("asked", "state"),
    [
        (["pause", "drain"], "drained"),
        (["drain", "pause"], "drained"),
        (["drain", "drain"], "drained"),
        (["drain", "resume", "pause"], "paused"),
        (["drain", "resume", "drain"], "drained"),
        (["pause", "drain", "resume"], "running"),
        (["drain", "pause", "resume"], "running"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "one by one"])
async def test_when_asked_in_a_row_then_the_last_word_counts_and_nothing_is_lost(
    asked: list[str], state: str, at_once: bool
) -> None:
    async with Rig(concurrency=2, prefetch=3) as rig:
        await rig.start()
        await rig.send(*range(10))
        for action in asked:
            getattr(rig.dispatcher, action)("orders")
            if not at_once:
                await rig.clock.settle()
        await rig.clock.advance(5)

        assert rig.dispatcher.performers[0].state == state
        stats = await rig.depth()
        assert stats.in_flight == 0
        assert len(rig.ended) + stats.visible == 10
        rig.dispatcher.resume("orders")
        await rig.clock.advance(5)
        assert sorted(rig.ended) == list(range(10))


async def test_when_drained_while_paused_then_what_is_in_hand_is_finished_or_handed_back() -> None:
    gate = Gate()
    async with Rig(gate, concurrency=1, prefetch=3) as rig:
        await rig.send(*range(10))
        await rig.start()
        rig.dispatcher.pause("orders")
        await rig.clock.settle()
        rig.dispatcher.drain("orders")
        await rig.clock.settle()
        assert (await rig.depth()).visible == 9

        gate.open()
        await rig.clock.settle()

        assert rig.ended == [0]
        assert rig.states == ["running", "paused", "draining", "drained"]


async def test_when_the_app_drains_while_one_is_paused_then_all_end() -> None:
    gate = Gate()
    async with Rig(gate, concurrency=1, prefetch=3) as rig:
        await rig.send(*range(10))
        await rig.start()
        rig.dispatcher.pause("orders")
        await rig.clock.settle()
        await rig.drain()
        gate.open()
        await rig.clock.settle()

        assert rig.running is not None
        assert rig.running.done()
        assert rig.ended == [0]
        assert (await rig.depth()).visible == 9
        assert rig.states == ["running", "paused", "draining", "stopped"]


async def test_when_the_app_drains_while_one_drains_then_both_drains_are_one() -> None:
    gate = Gate()
    async with Rig(gate) as rig:
        await rig.send(1)
        await rig.start()
        rig.dispatcher.drain("orders")
        await rig.clock.settle()
        await rig.drain()
        gate.open()
        await rig.clock.settle()

        assert rig.running is not None
        assert rig.running.done()
        assert rig.states == ["running", "draining", "stopped"]


async def test_when_stopped_now_while_drained_then_it_ends_at_once() -> None:
    async with Rig() as rig:
        await rig.start()
        rig.dispatcher.drain("orders")
        await rig.clock.settle()
        rig.dispatcher.stop_now()
        await rig.clock.settle()

        assert rig.running is not None
        assert rig.running.done()
        assert rig.states[-1] == "stopped"


async def test_when_a_pump_breaks_while_it_drains_then_it_is_drained_and_nothing_is_lost() -> None:
    async with Rig(Gate()) as rig:
        await rig.send(1)
        await rig.start()
        rig.gateway.fail("extend", Defect("bug"), times=1)
        rig.dispatcher.drain("orders")
        await rig.clock.advance(20)

        assert rig.states == ["running", "draining", "failed", "drained"]
        await rig.clock.advance(30)
        assert (await rig.depth()).visible == 1


async def test_when_the_broker_is_away_while_one_drains_then_the_drain_still_ends() -> None:
    async with Rig(drain_timeout=timedelta(seconds=20)) as rig:
        rig.gateway.fail("settle", ConnectionFailed("broker", "away"))
        await rig.send(1)
        await rig.start()
        rig.dispatcher.drain("orders")
        await rig.clock.advance(60)

        assert rig.dispatcher.performers[0].state == "drained"
        await rig.clock.advance(60)
        assert (await rig.depth()).visible == 1, "not lost"


async def test_when_resumed_while_its_port_still_closes_then_it_waits_for_that() -> None:
    """SQS waits there for its last long poll; two consumers at once would be one too many."""
    rig = Rig()
    closing = asyncio.Event()
    made: list[ConsumerPort] = []
    inner = rig.gateway.consumer

    class Slow:
        def __init__(self, port: ConsumerPort) -> None:
            self._port = port
            self.receive, self.settle, self.extend = port.receive, port.settle, port.extend

        async def aclose(self) -> None:
            await closing.wait()
            await self._port.aclose()

    def consumer(subscription: object) -> ConsumerPort:
        made.append(Slow(inner(rig.subscription)))
        return made[-1]

    rig.gateway.consumer = consumer  # type: ignore[method-assign]
    async with rig:
        await rig.start()
        rig.dispatcher.drain("orders")
        await rig.clock.settle()
        rig.dispatcher.resume("orders")
        await rig.clock.advance(10)
        assert len(made) == 1
        assert rig.dispatcher.performers[0].state == "draining"

        closing.set()
        await rig.clock.settle()

        assert len(made) == 2
        assert rig.dispatcher.performers[0].state == "running"


async def test_when_a_scaled_one_is_drained_and_resumed_then_it_keeps_its_size() -> None:
    gate = Gate()
    async with Rig(gate, concurrency=1, prefetch=0) as rig:
        await rig.start()
        rig.dispatcher.drain("orders")
        await rig.clock.settle()
        rig.dispatcher.scale("orders", 4)
        rig.dispatcher.resume("orders")
        await rig.send(*range(10))
        await rig.clock.settle()

        assert rig.running_count == 4
        gate.open()


async def test_when_a_job_until_empty_has_its_only_subscription_drained_then_it_ends() -> None:
    async with Rig() as rig:
        dispatcher = rig.app.dispatcher()
        await rig.send(1)
        dispatcher.drain("orders")
        running = asyncio.create_task(run_until_signalled(dispatcher, until_empty=True))
        await rig.clock.advance(60)

        assert running.done()
        await running
        assert rig.started == []


async def test_when_drained_then_observers_are_told_of_every_change() -> None:
    """R23."""
    told: list[Sequence[str]] = []
    rig = Rig()
    with_notes(rig)
    rig.app.observe(
        lambda event: told.append((getattr(event, "subscription", ""), getattr(event, "state", "")))
    )
    async with rig:
        await rig.start()
        rig.dispatcher.pause("orders")
        rig.dispatcher.drain("notes")
        await rig.clock.settle()
        rig.dispatcher.resume("notes")
        await rig.clock.settle()
        await rig.finish()

    assert [state for name, state in told if name == "orders" and state] == [
        *("running", "paused", "draining", "stopped")
    ]
    assert [state for name, state in told if name == "notes" and state] == [
        *("running", "draining", "drained", "running", "draining", "stopped")
    ]

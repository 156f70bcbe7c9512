"""Dispatcher: pumps that break are restarted, those that stop for good do not stop others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import structlog.testing

from pump import InvalidMessage, Subscription, UnacceptableLimit
from pump.capabilities import OrderingMode
from pump.errors import (
    AccessDenied,
    ConfigurationError,
    ConnectionFailed,
    GatewayError,
    QueueNotFound,
    Throttled,
    UnacceptableLimitReached,
    UnsupportedOperation,
)
from pump.events import PumpStateEvent
from pump.message import Delivery
from pump.ports import ConsumerPort
from pump.testing.virtual_clock import VirtualClock

from .faulty_gateway import FaultyGateway
from .notes import Defect, Note, with_notes
from .rig import Gate, Rig, Work

pytestmark = pytest.mark.usefixtures("quiet")


# -- restarting ---------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["receive", "settle", "extend"])
async def test_when_a_pump_breaks_then_it_hands_back_and_is_restarted(operation: str) -> None:
    gate = Gate()
    async with Rig(gate) as rig:
        await rig.start()
        await rig.send(1)
        await rig.clock.settle()
        rig.gateway.fail(operation, Defect("bug"), times=1)
        if operation == "settle":
            gate.open()
        await rig.clock.advance(30)
        gate.open()
        await rig.clock.advance(60)

        assert await rig.total() == 0
        assert rig.ended[-1] == 1
        assert rig.states == ["running", "failed", "running"]
        assert rig.dispatcher.performers[0].stats.restarts == 1


async def test_when_a_pump_keeps_breaking_then_the_pauses_grow() -> None:
    rig = Rig()
    moments: list[float] = []
    rig.app.observe(
        lambda event: (
            moments.append(rig.clock.now_s() - 1_000)
            if isinstance(event, PumpStateEvent) and event.state == "running"
            else None
        )
    )
    async with rig:
        rig.gateway.fail("receive", Defect("bug"))
        with structlog.testing.capture_logs() as lines:
            await rig.start()
            await rig.clock.advance(10)

        assert moments == pytest.approx([0, 0.5, 1.5, 3.5, 7.5])
        failures = [line for line in lines if line["event"] == "pump.failed"]
        assert len(failures) == 5
        assert {line["log_level"] for line in failures} == {"error"}
        rig.gateway.heal("receive")


async def test_when_a_pump_ran_steadily_before_it_broke_then_the_pauses_start_anew() -> None:
    async with Rig() as rig:
        rig.gateway.fail("receive", Defect("bug"), times=4)
        await rig.start()
        await rig.clock.advance(100)
        assert rig.states.count("failed") == 4

        rig.gateway.fail("receive", Defect("bug"), times=1)
        while rig.states.count("failed") < 5:
            assert await rig.clock.advance_to_next()
        await rig.clock.advance(0.6)

        assert rig.states[-1] == "running"


async def test_when_a_pump_breaks_then_its_statistics_go_on() -> None:
    async with Rig() as rig:
        await rig.start()
        await rig.send(1)
        await rig.clock.settle()
        rig.gateway.fail("receive", Defect("bug"), times=1)
        await rig.clock.advance(25)
        await rig.send(2)
        await rig.clock.advance(1)

        stats = rig.dispatcher.performers[0].stats
        assert (stats.processed, stats.restarts) == (2, 1)


async def test_when_drained_during_the_pause_before_a_restart_then_it_ends_at_once() -> None:
    async with Rig() as rig:
        rig.gateway.fail("receive", Defect("bug"))
        await rig.start()
        await rig.clock.advance(20)
        assert rig.states[-1] == "failed"

        await rig.finish()

        assert rig.states[-1] == "stopped"


# -- stopping for good --------------------------------------------------------------------------


async def test_when_one_subscription_stops_for_good_then_the_others_go_on() -> None:
    async def invalid(work: Work) -> None:
        raise InvalidMessage("what?")

    rig = Rig(invalid, unacceptable_limit=UnacceptableLimit(count=1))
    noted = with_notes(rig)
    async with rig:
        await rig.start()
        await rig.send(1)
        await rig.clock.settle()
        assert [each.state for each in rig.dispatcher.performers] == ["stopped", "running"]
        await rig.app.post(Note(n=5))
        await rig.clock.advance(100)

        assert noted == [5]
        assert rig.running is not None
        assert not rig.running.done()
        with pytest.raises(UnacceptableLimitReached, match="'orders'"):
            await rig.finish()


async def test_when_several_stop_for_good_then_their_failures_come_together() -> None:
    async def invalid(work: Work) -> None:
        raise InvalidMessage("what?")

    limit = UnacceptableLimit(count=1)
    rig = Rig(invalid, unacceptable_limit=limit)
    rig.app.subscribe(
        Subscription(queue="more", request=Work, name="more", unacceptable_limit=limit)
    )
    async with rig:
        await rig.start()
        await rig.send(1)
        await rig.send(2, queue="more")
        await rig.clock.settle()

        assert rig.running is not None
        with pytest.raises(ExceptionGroup, match="several pumps stopped") as caught:
            await rig.running
        assert [type(each) for each in caught.value.exceptions] == [UnacceptableLimitReached] * 2


async def test_when_one_subscriptions_broker_fails_then_the_others_go_on() -> None:
    """Law 7."""
    rig = Rig()
    noted = with_notes(rig)
    inner = rig.gateway.consumer

    class Broken:
        def __init__(self, port: ConsumerPort) -> None:
            self.settle, self.extend, self.aclose = port.settle, port.extend, port.aclose

        async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
            raise ConnectionFailed("orders", "away")

    def consumer(subscription: Subscription) -> ConsumerPort:
        port = inner(subscription)
        return Broken(port) if subscription.queue == "orders" else port

    rig.gateway.consumer = consumer  # type: ignore[method-assign]
    async with rig:
        await rig.start()
        await rig.app.post(Note(n=5))
        await rig.clock.advance(100)

        assert noted == [5]
        assert [each.state for each in rig.dispatcher.performers] == ["running", "running"]


# -- starting -----------------------------------------------------------------------------------


async def test_when_the_queues_are_missing_then_they_are_made() -> None:
    rig = Rig(invalid_queue="bad")
    noted = with_notes(rig, dead_letter_queue="notes-dead")
    async with rig:
        await rig.start()

        names = [stats.name for stats in await rig.gateway.admin().queues()]
        assert names == ["bad", "dead", "notes", "notes-dead", "orders"]
        assert noted == []


async def test_when_a_queue_must_exist_and_does_not_then_that_is_raised_at_once() -> None:
    """R22."""
    rig = Rig()
    with_notes(rig, make_channels="validate")
    async with rig:
        await rig.start()

        assert rig.running is not None
        with pytest.raises(QueueNotFound, match="notes"):
            await rig.running
        assert rig.record.calls["receive"] == 0
        assert rig.states == []


async def test_when_access_is_denied_at_the_start_then_that_is_raised_at_once() -> None:
    async with Rig() as rig:
        rig.gateway.fail("ensure", AccessDenied("orders", "create"))
        await rig.start()

        assert rig.running is not None
        with pytest.raises(AccessDenied):
            await rig.running


async def test_when_queues_are_assumed_then_nothing_is_asked_and_receiving_finds_out() -> None:
    rig = Rig()
    rig.app._subscriptions.clear()
    rig.app.subscribe(Subscription(queue="later", request=Work, make_channels="assume"))
    async with rig:
        await rig.start()
        await rig.clock.advance(3)
        assert rig.states == ["running"]

        await rig.make_queue("later")
        await rig.send(1, queue="later")
        await rig.clock.advance(10)

        assert rig.ended == [1]


@pytest.mark.parametrize(
    "error", [ConnectionFailed("broker", "away"), Throttled("broker")], ids=["away", "throttled"]
)
async def test_when_the_broker_is_away_at_the_start_then_it_is_waited_for(
    error: GatewayError,
) -> None:
    """R51."""
    async with Rig() as rig:
        await rig.send(1)
        rig.gateway.fail("ensure", error)
        await rig.start()
        await rig.clock.advance(30)
        assert rig.started == []

        rig.gateway.heal("ensure")
        await rig.clock.advance(60)

        assert rig.ended == [1]


async def test_when_drained_while_waiting_for_the_broker_then_it_ends_at_once() -> None:
    async with Rig() as rig:
        rig.gateway.fail("ensure", ConnectionFailed("broker", "away"))
        await rig.start()
        await rig.clock.advance(30)

        await rig.finish()

        assert rig.record.calls["receive"] == 0


@pytest.mark.parametrize(
    ("capabilities", "subscription", "error", "named"),
    [
        (
            {"ordering_modes": frozenset({OrderingMode.FIFO})},
            {"ordering": "lifo"},
            UnsupportedOperation,
            "ordering='lifo'",
        ),
        (
            {"has_strict_order": False},
            {"ordering_guarantee": True},
            ConfigurationError,
            "ordering_guarantee",
        ),
        (
            {"has_native_redrive": False},
            {"max_receive_count": 3},
            UnsupportedOperation,
            "max_receive_count",
        ),
    ],
)
async def test_when_the_gateway_cannot_do_it_then_starting_says_what_and_why(
    capabilities: dict[str, Any],
    subscription: dict[str, Any],
    error: type[Exception],
    named: str,
) -> None:
    """R76, T7."""
    clock = VirtualClock()
    rig = Rig(clock=clock, gateway=FaultyGateway(clock, **capabilities), **subscription)
    async with rig:
        await rig.start()

        assert rig.running is not None
        with pytest.raises(error, match=named):
            await rig.running

"""Outcomes as observers hear of them, with their attempts (R17–R19, R23, R24, R35)."""

from __future__ import annotations

from datetime import timedelta

import pytest
import structlog.testing

from pump import (
    Backoff,
    DeferMessage,
    InvalidMessage,
    RejectionReason,
    RejectMessage,
    dead_letter,
    hybrid,
    retry,
)
from pump.errors import ConnectionFailed
from pump.events import Event, OutcomeEvent, Status
from pump.outcome import ACK, Defer
from pump.subscription import FailureStrategy
from pump.testing.virtual_clock import VirtualClock

from ..core.faulty_gateway import FaultyGateway
from ..core.rig import Gate, Rig, Work

NO_JITTER = Backoff(initial=timedelta(seconds=1), factor=2, jitter=0)


async def fail(work: Work) -> None:
    raise ValueError("boom")


@pytest.mark.parametrize(
    ("strategy", "deliveries"),
    [
        (retry(5, backoff=NO_JITTER), 6),
        (retry(0, backoff=NO_JITTER), 1),
        (hybrid(3, "dead", backoff=NO_JITTER), 4),
        (dead_letter("dead"), 1),
    ],
    ids=["retry 5", "retry 0", "hybrid 3", "dead letter"],
)
async def test_when_a_message_keeps_failing_then_it_is_retried_and_then_dead_lettered(
    strategy: FailureStrategy, deliveries: int
) -> None:
    """R17, R18, R19, R24, T5."""
    async with Rig(fail, failure=strategy) as rig:
        await rig.start()
        [id_] = await rig.send(1)
        await rig.clock.advance(600)

        assert [(o.message_id, o.attempt) for o in rig.outcomes] == [
            (id_, attempt) for attempt in range(1, deliveries + 1)
        ]
        *retried, last = rig.outcomes
        assert all(outcome.status is Status.RETRYING for outcome in retried)
        assert all(outcome.detail == "ValueError: boom" for outcome in rig.outcomes)
        assert last.status is Status.DEAD_LETTERED
        assert (last.reason, last.destination) == (RejectionReason.DELIVERY_ERROR, "dead")
        assert await rig.total("dead") == 1
        stats = rig.dispatcher.performers[0].stats
        assert (stats.received, stats.retried, stats.dead_lettered) == (
            deliveries,
            deliveries - 1,
            1,
        )


async def test_when_a_message_is_retried_then_it_stays_hidden_for_the_backoff() -> None:
    """R17: with a new visibility timeout."""
    async with Rig(fail, failure=hybrid(3, backoff=NO_JITTER)) as rig:
        await rig.start()
        await rig.send(1)
        await rig.clock.settle()
        started = []
        for _ in range(16):
            started.append(len(rig.started))
            await rig.clock.advance(0.5)

        # After 1 s, 2 s and 4 s.
        assert started == [1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 4, 4]


async def test_when_a_message_is_processed_then_the_event_says_how_long_it_ran() -> None:
    """R24."""
    gate = Gate()
    async with Rig(gate) as rig:
        await rig.start()
        created_at_s = rig.clock.time_s()
        [id_] = await rig.send(1)
        await rig.clock.advance(2.5)
        assert rig.outcomes == [], "told only once the broker has confirmed"
        gate.open()
        await rig.clock.settle()

        assert rig.outcomes == [
            OutcomeEvent(
                message_id=id_,
                status=Status.PROCESSED,
                attempt=1,
                queue="orders",
                subscription="orders",
                message_type="Work",
                run_s=2.5,
                created_at_s=created_at_s,
            )
        ]


async def test_when_the_broker_has_not_confirmed_then_nobody_is_told() -> None:
    """R24: an event is a fact."""
    async with Rig() as rig:
        rig.gateway.hang("settle")
        await rig.start()
        await rig.send(1)
        await rig.clock.advance(10)
        assert rig.ended == [1]
        assert rig.outcomes == []

        rig.gateway.heal("settle")
        await rig.clock.advance(25)

        assert [outcome.status for outcome in rig.outcomes] == [Status.PROCESSED]


@pytest.mark.parametrize("delay_s", [0, 0.5, 30, 3_600])
async def test_when_a_handler_defers_then_the_message_comes_again_after_that_delay(
    delay_s: float,
) -> None:
    """R35."""

    async def defer_once(work: Work) -> None:
        if rig.attempts[1] == 1:
            raise DeferMessage(timedelta(seconds=delay_s))

    async with Rig(defer_once) as rig:
        await rig.start()
        await rig.send(1)
        await rig.clock.settle()
        if delay_s:
            await rig.clock.advance(delay_s - 0.1)
            assert rig.started == [1]
            await rig.clock.advance(0.2)

        assert rig.started == [1, 1]
        assert [o.status.value for o in rig.outcomes] == ["retrying", "processed"]
        assert [o.attempt for o in rig.outcomes] == [1, 2]


async def test_when_the_provider_cannot_delay_that_long_then_it_delays_as_long_as_it_can() -> None:
    async def defer(work: Work) -> None:
        raise DeferMessage(timedelta(hours=3))

    clock = VirtualClock()
    async with Rig(defer, clock=clock, gateway=FaultyGateway(clock, max_defer_s=900)) as rig:
        await rig.start()
        await rig.send(1)
        await rig.clock.settle()

        assert [action for _, action in rig.record.actions()] == [Defer(900)]


async def test_when_a_handler_defers_for_ever_then_it_is_never_dead_lettered() -> None:
    async def defer(work: Work) -> None:
        raise DeferMessage(timedelta(seconds=1))

    async with Rig(defer, failure=hybrid(0)) as rig:
        await rig.start()
        await rig.send(1)
        await rig.clock.advance(50.5)

        assert len(rig.started) == 51
        assert await rig.total("dead") == 0


@pytest.mark.parametrize(
    ("signal", "queue", "reason", "counted"),
    [
        (RejectMessage("no stock"), "dead", RejectionReason.DELIVERY_ERROR, "dead_lettered"),
        (InvalidMessage("no id"), "bad", RejectionReason.UNACCEPTABLE, "invalid"),
    ],
)
async def test_when_a_handler_rejects_then_the_event_carries_reason_and_destination(
    signal: Exception, queue: str, reason: RejectionReason, counted: str
) -> None:
    """R24, R25, R26, R35."""

    async def reject(work: Work) -> None:
        raise signal

    async with Rig(reject, invalid_queue="bad") as rig:
        await rig.start()
        await rig.send(1)
        await rig.clock.settle()

        [outcome] = rig.outcomes
        assert (outcome.status, outcome.reason, outcome.destination, outcome.detail) == (
            Status.DEAD_LETTERED,
            reason,
            queue,
            str(signal),
        )
        assert await rig.total(queue) == 1
        assert getattr(rig.dispatcher.performers[0].stats, counted) == 1
        assert [action for _, action in rig.record.actions()] == [ACK], "no visibility-0 detour"


async def test_when_a_rejected_message_is_kept_then_it_is_told_and_counted_as_retrying() -> None:
    """R24, T1 KEEP."""

    async def reject(work: Work) -> None:
        raise RejectMessage("no")

    async with Rig(reject, on_routing_failure="keep", failure=hybrid(0, backoff=NO_JITTER)) as rig:
        await rig.send(1)
        rig.gateway.fail("send", ConnectionFailed("dead", "away"), times=2)
        await rig.start()
        await rig.clock.advance(10)

        assert [(o.status.value, o.destination) for o in rig.outcomes] == [
            ("retrying", None),
            ("retrying", None),
            ("dead-lettered", "dead"),
        ]
        stats = rig.dispatcher.performers[0].stats
        assert (stats.retried, stats.dead_lettered) == (2, 1)


async def test_when_an_observer_raises_then_the_others_are_told_and_the_pump_goes_on() -> None:
    """R23."""
    told: list[Event] = []

    def broken(event: Event) -> None:
        raise RuntimeError("observer")

    async with Rig() as rig:
        rig.app.observe(broken)
        rig.app.observe(told.append)
        with structlog.testing.capture_logs() as lines:
            await rig.start()
            await rig.send(1, 2)
            await rig.clock.settle()

        assert told == rig.events
        assert len(rig.outcomes) == 2
        assert rig.states == ["running"]
        failures = [line for line in lines if line["event"] == "observer.failed"]
        assert len(failures) == len(told)
        assert failures[0]["log_level"] == "error"
        assert failures[0]["told"] == "PumpStateEvent"
        assert failures[0]["error"] == "RuntimeError"
        assert 'raise RuntimeError("observer")' in failures[0]["traceback"]


async def test_when_nobody_observes_then_no_event_is_made_and_work_is_done() -> None:
    rig = Rig()
    rig.app._observers._observers.clear()
    async with rig:
        await rig.start()
        await rig.send(1)
        await rig.clock.settle()

        assert rig.ended == [1]
        assert rig.dispatcher.performers[0].stats.processed == 1


async def test_when_there_is_no_dead_letter_queue_then_the_start_says_so() -> None:
    """T2."""
    with structlog.testing.capture_logs() as lines:
        async with Rig(dead_letter_queue=None) as rig:
            await rig.start()

    [line] = [line for line in lines if line["event"] == "dead_letter.missing"]
    assert (line["log_level"], line["subscription"]) == ("warning", "orders")


async def test_when_delivery_lines_are_wanted_then_there_is_one_for_each_delivery(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """R61."""

    async def fail_once(work: Work) -> None:
        if rig.attempts[1] == 1:
            raise ValueError("boom")

    caplog.set_level("INFO", logger="pump.delivery")
    with structlog.testing.capture_logs() as lines:
        async with Rig(fail_once) as rig:
            await rig.start()
            [id_] = await rig.send(1)
            await rig.clock.advance(10)

    settled = [line for line in lines if line["event"] == "message.settled"]
    assert [(line["outcome"], line["attempt"], line["message_id"]) for line in settled] == [
        ("defer", 1, id_),
        ("ack", 2, id_),
    ]
    assert settled[0]["error"] == "ValueError"
    assert "boom" not in str(settled)

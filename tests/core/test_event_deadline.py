"""When an event's messages start, and what happens when its time is up."""

from __future__ import annotations

from datetime import timedelta

import structlog.testing

from pump import RejectMessage
from pump.aws_lambda import LambdaOptions
from pump.errors import (
    ConnectionFailed,
    QueueNotFound,
)
from pump.events import LeaseLostEvent
from pump.outcome import ABANDON, Defer
from pump.subscription import UnacceptableLimit

from .event_function import Function, failing
from .pushing_gateway import a_record
from .rig import Gate


async def test_when_one_of_a_group_fails_then_those_behind_it_are_not_started() -> None:
    """R38: they come again after it."""
    function = Function(failing(2))
    records = [a_record(n, group="a") for n in (1, 2, 3, 4)] + [a_record(9, group="b")]
    async with function.opened():
        failed = await function.invoke(*records)

    assert failed == ["r-2", "r-3", "r-4"]
    assert function.rig.started == [1, 9, 2]
    assert [each for each in function.gateway.pushed if each[1] == ABANDON] == [
        ("r-3", ABANDON),
        ("r-4", ABANDON),
    ]


async def test_when_one_of_a_group_is_rejected_then_the_next_is_started() -> None:
    function = Function(failing(1, error=RejectMessage("no")))
    async with function.opened():
        assert await function.invoke(a_record(1, group="a"), a_record(2, group="a")) == []

    assert function.rig.started == [1, 2]


async def test_when_order_is_guaranteed_then_messages_without_a_group_wait_for_each_other() -> None:
    gate = Gate()
    function = Function(gate, ordering_guarantee=True)
    async with function.opened():
        _, running = function.start(a_record(1), a_record(2))
        await function.clock.settle()
        assert function.rig.started == [1]

        gate.open()
        await running

    assert function.rig.started == [1, 2]


async def test_when_there_are_more_than_may_run_at_once_then_they_wait_their_turn() -> None:
    gate = Gate()
    function = Function(gate, concurrency=2)
    async with function.opened():
        _, running = function.start(*(a_record(n) for n in range(5)))
        await function.clock.settle()
        assert function.rig.running_count == 2
        assert len(function.gateway.fetched) == 2

        gate.open()
        await running

    assert function.rig.most_at_once == 2
    assert len(function.rig.ended) == 5


async def test_when_the_time_is_up_then_what_runs_is_cancelled_and_nothing_more_starts() -> None:
    """Law 3: as if its lease were lost; the provider is told of those that never started."""
    gate = Gate()
    function = Function(gate, concurrency=2)
    gate.open(1)
    async with function.opened():
        answer, running = function.start(*(a_record(n) for n in (1, 2, 3, 4)), ends_in_s=10)
        await function.clock.advance(8.9)
        assert not running.done()

        await function.clock.advance(0.1)
        await running

    assert answer.failed_ids == ["r-2", "r-3", "r-4"]
    assert function.rig.cancelled == [2, 3]
    assert function.rig.started == [1, 2, 3]
    assert {each.message_id for each in function.rig.told(LeaseLostEvent)} == {"r-2", "r-3"}
    assert ("r-4", ABANDON) in function.gateway.pushed
    assert not {"r-2", "r-3"} & {message_id for message_id, _ in function.gateway.pushed}


async def test_when_the_margin_is_longer_than_the_time_then_half_of_it_is_used() -> None:
    function = Function(options=LambdaOptions(margin=timedelta(minutes=1)))
    async with function.opened():
        assert await function.invoke(a_record(1), ends_in_s=3) == []


async def test_when_no_time_is_left_then_nothing_starts() -> None:
    function = Function()
    async with function.opened():
        assert await function.invoke(a_record(1), a_record(2), ends_in_s=0) == ["r-1", "r-2"]

    assert function.rig.started == []


async def test_when_the_provider_does_not_answer_then_the_function_does_in_time() -> None:
    function = Function(failing(1))
    function.gateway.hang("push")
    async with function.opened():
        started_s = function.clock.now_s()
        assert await function.invoke(a_record(1), a_record(2), ends_in_s=10) == ["r-1"]
        assert function.clock.now_s() - started_s < 10


async def test_when_a_body_cannot_be_had_then_its_message_is_put_off_with_its_group() -> None:
    function = Function()
    function.gateway.fail("fetch", ConnectionFailed("s3", "away"))
    async with function.opened():
        failed = await function.invoke(a_record(1, group="a"), a_record(2, group="a"))

    assert failed == ["r-1", "r-2"]
    assert function.rig.started == []
    assert ("r-1", Defer(7.0)) in function.gateway.pushed


async def test_when_a_queue_cannot_be_made_ready_then_its_records_come_again() -> None:
    """Made once, at the first event; a failure is met again, not remembered."""
    function = Function()
    function.gateway.fail("ensure", QueueNotFound("dead"), times=1)
    async with function.opened():
        with structlog.testing.capture_logs() as logs:
            assert await function.invoke(a_record(1)) == ["r-1"]
        assert await function.invoke(a_record(1)) == []
        ensured = function.gateway.record.calls["ensure"]
        assert await function.invoke(a_record(2)) == []
        assert function.gateway.record.calls["ensure"] == ensured

    assert "make_channels" in next(
        each["remedy"] for each in logs if each["event"] == "records.refused"
    )


async def test_when_too_many_are_unacceptable_then_the_rest_waits_for_a_window() -> None:
    """A deployment that reads nothing must not empty its queue into the bin."""
    limit = UnacceptableLimit(count=2, window=timedelta(minutes=1))
    function = Function(invalid_queue="invalid", unacceptable_limit=limit, ordering_guarantee=True)
    async with function.opened():
        with structlog.testing.capture_logs():
            failed = await function.invoke(*(a_record(n, body="{") for n in (1, 2, 3)), a_record(4))
            assert failed == ["r-3", "r-4"]
            assert await function.invoke(a_record(5)) == ["r-5"]

        await function.clock.advance(60)
        assert await function.invoke(a_record(5)) == []

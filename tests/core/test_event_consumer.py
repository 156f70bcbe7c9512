"""Events are handled as the pump handles what it receives, and nothing is lost by the answer."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
import structlog.testing

from pump import DeferMessage, InvalidMessage, RejectMessage, hybrid
from pump.aws_lambda import LambdaOptions
from pump.aws_lambda.handler import BatchAnswer
from pump.context import Context
from pump.errors import (
    AccessDenied,
    ConfigurationError,
    ConnectionFailed,
    UnsupportedOperation,
)
from pump.events import BestEffortOrderEvent, Status
from pump.outcome import ACK, Defer
from pump.pipeline import Proceed
from pump.testing.virtual_clock import VirtualClock

from .event_function import Function, failing
from .pushing_gateway import PushingGateway, a_record
from .rig import Rig


@contextmanager
def _info(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(before)


async def test_when_all_are_handled_then_none_is_reported() -> None:
    """R24."""
    function = Function()
    async with function.opened():
        failed = await function.invoke(a_record(1), a_record(2), a_record(3))

    assert failed == []
    assert sorted(function.rig.ended) == [1, 2, 3]
    assert {each.status for each in function.rig.outcomes} == {Status.PROCESSED}


async def test_when_one_fails_then_it_alone_is_reported_and_put_off() -> None:
    function = Function(failing(2), failure=hybrid(max_retries=3))
    async with function.opened():
        failed = await function.invoke(a_record(1), a_record(2), a_record(3))

    assert failed == ["r-2"]
    [(message_id, action)] = [each for each in function.gateway.pushed if each[1] != ACK]
    assert message_id == "r-2"
    assert isinstance(action, Defer)
    assert function.gateway.answered == [True]


async def test_when_a_handler_asks_for_a_delay_then_the_provider_is_told_that_one() -> None:
    function = Function(failing(1, error=DeferMessage(timedelta(minutes=3))))
    async with function.opened():
        assert await function.invoke(a_record(1)) == ["r-1"]

    assert function.gateway.pushed == [("r-1", Defer(180.0))]


async def test_when_the_delay_cannot_be_told_then_the_message_is_reported_all_the_same() -> None:
    """A role may lack the permission; the message then comes when its lease ends."""
    function = Function(failing(1))
    function.gateway.fail("push", AccessDenied("orders", "sqs:ChangeMessageVisibility"))
    async with function.opened():
        with structlog.testing.capture_logs() as logs:
            assert await function.invoke(a_record(1), a_record(2)) == ["r-1"]

    [line] = [each for each in logs if each["event"] == "settle.failed"]
    assert "sqs:ChangeMessageVisibility" in line["error"]


@pytest.mark.parametrize(
    ("error", "queue", "reason"),
    [
        (RejectMessage("broken"), "dead", "DeliveryError"),
        (InvalidMessage("broken"), "invalid", "Unacceptable"),
    ],
)
async def test_when_a_message_is_rejected_then_it_is_routed_and_not_reported(
    error: Exception, queue: str, reason: str
) -> None:
    """R25, R26, R28: the same routing as the pump's, with its headers."""
    function = Function(failing(1, error=error), invalid_queue="invalid")
    async with function.opened():
        assert await function.invoke(a_record(1, attempt=4)) == []
        [copy] = await function.rig.messages(queue)

    assert copy.headers["rejectionReason"] == reason
    assert copy.headers["attempts"] == "4"
    assert function.rig.outcomes[0].destination == queue


async def test_when_a_message_cannot_be_read_then_it_is_routed_as_unacceptable() -> None:
    function = Function(invalid_queue="invalid")
    async with function.opened():
        assert await function.invoke(a_record(1, body="{")) == []
        assert len(await function.rig.messages("invalid")) == 1


async def test_when_no_retries_are_left_then_it_is_dead_lettered() -> None:
    """R19, T5."""
    function = Function(failing(1), failure=hybrid(max_retries=3))
    async with function.opened():
        assert await function.invoke(a_record(1, attempt=3)) == ["r-1"]
        assert await function.invoke(a_record(1, attempt=4)) == []
        assert len(await function.rig.messages("dead")) == 1


async def test_when_routing_fails_then_nothing_is_spilled_and_the_message_comes_again() -> None:
    """T1: a function's disk ends with it, so only a spill that the app chose is used."""
    function = Function(failing(1, error=RejectMessage("broken")))
    function.gateway.fail("send", ConnectionFailed("dead", "away"))
    function.rig.app._default_spill = function.rig.spill
    async with function.opened():
        assert await function.invoke(a_record(1)) == ["r-1"]
        assert await function.rig.spill.all() == []

    [(_, action)] = function.gateway.pushed
    assert isinstance(action, Defer)


async def test_when_the_app_has_a_spill_of_its_own_then_routing_failures_go_there() -> None:
    """T1."""
    function = Function(failing(1, error=RejectMessage("broken")))
    function.gateway.fail("send", ConnectionFailed("dead", "away"))
    async with function.opened():
        assert await function.invoke(a_record(1)) == []
        assert len(await function.rig.spill.all()) == 1


async def test_when_a_queue_has_no_subscription_then_its_records_fail_and_the_log_says_why() -> (
    None
):
    function = Function()
    async with function.opened():
        with structlog.testing.capture_logs() as logs:
            failed = await function.invoke(
                a_record(1), a_record(2, queue="other"), a_record(3, queue="other")
            )

    assert failed == ["r-2", "r-3"]
    assert function.rig.ended == [1]
    [line] = [each for each in logs if each["event"] == "records.refused"]
    assert (line["queue"], line["count"], line["log_level"]) == ("other", 2, "error")
    assert "app.subscribe" in line["remedy"]


async def test_when_a_record_is_malformed_then_it_fails_alone() -> None:
    function = Function()
    async with function.opened():
        with structlog.testing.capture_logs() as logs:
            failed = await function.invoke(a_record(1, defect="body is no text"), a_record(2))

    assert failed == ["r-1"]
    assert [each["error"] for each in logs if each["event"] == "records.refused"] == [
        "r-1: body is no text"
    ]


async def test_when_the_answer_cannot_name_failures_then_acks_are_told_beside_it() -> None:
    """All of the event comes again after an error: what was handled is removed before."""
    function = Function(failing(2), options=LambdaOptions(partial_batches=False))
    async with function.opened():
        assert await function.invoke(a_record(1), a_record(2)) == ["r-2"]
        assert function.gateway.answered == [False]
        assert ("r-1", ACK) in function.gateway.pushed

        assert await function.invoke(a_record(3)) == []
        assert function.gateway.answered == [False, True]


async def test_when_a_message_is_handled_then_middleware_and_log_are_the_pumps() -> None:
    """R61: one canonical line a delivery."""
    seen: list[tuple[int, int]] = []

    async def watch(request: Any, context: Context, proceed: Proceed) -> Any:
        seen.append((request.n, context.attempt))
        return await proceed(request)

    function = Function(failing(2), middleware=[watch])
    async with function.opened():
        with structlog.testing.capture_logs() as logs, _info("pump.delivery"):
            await function.invoke(a_record(1), a_record(2, attempt=2))

    assert seen == [(1, 1), (2, 2)]
    lines = [each for each in logs if each["event"] == "message.settled"]
    assert sorted((each["message_id"], each["outcome"]) for each in lines) == [
        ("r-1", "ack"),
        ("r-2", "defer"),
    ]


async def test_when_an_event_is_none_of_the_providers_then_that_is_an_error() -> None:
    function = Function()
    async with function.opened() as consumer:
        with pytest.raises(ConfigurationError, match="give a dict"):
            consumer.read("nonsense")


async def test_when_the_gateway_invokes_no_functions_then_that_is_said() -> None:
    rig = Rig()
    async with rig:
        with pytest.raises(UnsupportedOperation, match=r"sqs://"):
            rig.app.event_consumer(LambdaOptions())


async def test_when_nothing_is_subscribed_then_that_is_said() -> None:
    function = Function()
    function.rig.app._subscriptions.clear()
    async with function.rig.app:
        with pytest.raises(ConfigurationError, match=r"app\.subscribe"):
            function.rig.app.event_consumer(LambdaOptions())


@pytest.mark.parametrize(
    "fields", [{"margin": timedelta(0)}, {"margin": 3}, {"partial_batches": "yes"}]
)
def test_when_an_option_cannot_work_then_it_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="lambda_handler"):
        LambdaOptions(**fields)


def test_when_a_message_comes_twice_in_an_event_then_its_id_is_named_once() -> None:
    gateway = PushingGateway(VirtualClock())
    records = gateway.pushed_records({"Records": [a_record(1), a_record(1), a_record(2)]})
    answer = BatchAnswer(records)
    answer.complete(records[0])

    assert answer.failed_ids == ["r-1", "r-2"]


async def test_when_the_first_event_comes_then_observers_hear_that_order_is_best_effort() -> None:
    """R37: once, as a pump says it when it starts."""
    function = Function()
    async with function.opened():
        await function.invoke(a_record(1))
        await function.invoke(a_record(2))

    assert len(function.rig.told(BestEffortOrderEvent)) == 1

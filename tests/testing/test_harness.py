"""The harness: an app in memory, on virtual time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pump import (
    App,
    Command,
    DeferMessage,
    Event,
    Message,
    RejectMessage,
    Subscription,
    UnacceptableLimit,
    current_context,
    retry,
)
from pump.errors import PumpError, UnacceptableLimitReached
from pump.testing import Harness

app = App("local://never/touched", spill="never/touched/spill.db")


class PlaceOrder(Command):
    order_id: str


class OrderPlaced(Event):
    order_id: str


@app.handler
async def place_order(request: PlaceOrder) -> None:
    if request.order_id == "fraud":
        raise RejectMessage("flagged")
    if request.order_id == "early" and attempt_now() == 1:
        raise DeferMessage(timedelta(hours=6))
    await app.post(OrderPlaced(request.order_id))


@app.handler
def note(event: OrderPlaced) -> None:
    noted.append(event.order_id)


app.subscribe(Subscription(queue="orders", request=PlaceOrder, dead_letter_queue="dead"))
app.subscribe(Subscription(queue="facts", request=OrderPlaced, dead_letter_queue="dead"))
noted: list[str] = []


def attempt_now() -> int:
    context = current_context()
    assert context is not None
    return context.attempt


async def test_when_a_handler_posts_through_the_apps_name_then_that_is_handled_too() -> None:
    noted.clear()

    async with Harness(app) as harness:
        await harness.send(PlaceOrder("1"))
        await harness.run_until_idle()

    assert noted == ["1"]
    assert harness.statuses == ["processed", "processed"]


async def test_when_deferred_for_hours_then_no_real_time_passes() -> None:
    async with Harness(app) as harness:
        started_s = harness.clock.now_s()
        await harness.send(PlaceOrder("early"))
        await harness.run_until_idle()

        assert harness.clock.now_s() - started_s == pytest.approx(6 * 3600, abs=1)
    assert harness.statuses == ["retrying", "processed", "processed"]


async def test_when_rejected_then_the_dead_letter_can_be_looked_at() -> None:
    async with Harness(app) as harness:
        id_ = await harness.send(PlaceOrder("fraud"))
        await harness.run_until_idle()
        [dead] = await harness.messages("dead")

    assert (dead.id, dead.headers["rejectionMessage"]) == (id_, "flagged")


async def test_when_garbage_is_sent_then_its_outcome_says_why() -> None:
    async with Harness(app) as harness:
        await harness.send(Message(body=b"garbage"))
        await harness.run_until_idle()

    [outcome] = harness.outcomes
    assert "malformed" in outcome.detail


async def test_when_it_has_ended_then_the_app_is_as_it_was() -> None:
    spill = app.spill

    async with Harness(app):
        pass

    assert app.gateway_name == "local://never/touched"
    assert app.spill is spill
    with pytest.raises(PumpError, match="not open"):
        await app.post(PlaceOrder("1"))


async def test_when_used_twice_then_each_time_is_a_fresh_start() -> None:
    for _ in range(2):
        async with Harness(app) as harness:
            await harness.send(PlaceOrder("fraud"))
            await harness.run_until_idle()
            assert len(await harness.messages("dead")) == 1


async def test_when_a_message_is_retried_for_ever_then_it_says_so() -> None:
    hopeless = App("memory://")
    hopeless.register(PlaceOrder, _fail)
    hopeless.subscribe(Subscription(queue="orders", request=PlaceOrder, failure=retry(None)))

    async with Harness(hopeless) as harness:
        await harness.send(PlaceOrder("1"))
        with pytest.raises(TimeoutError, match=r"not empty after 1:00:00: \{'orders': 1\}"):
            await harness.run_until_idle(limit=timedelta(hours=1))


async def test_when_the_pump_stops_for_good_then_the_test_is_told() -> None:
    strict = App("memory://")
    strict.register(PlaceOrder, place_order)
    strict.subscribe(
        Subscription(
            queue="orders", request=PlaceOrder, unacceptable_limit=UnacceptableLimit(count=1)
        )
    )

    async with Harness(strict) as harness:
        await harness.send(Message(body=b"garbage"))
        with pytest.raises(UnacceptableLimitReached):
            await harness.run_until_idle()


async def test_when_a_handler_is_missing_then_entering_fails_and_leaves_the_app_alone() -> None:
    empty = App("local://never/touched")
    empty.subscribe(Subscription(queue="orders", request=PlaceOrder))

    with pytest.raises(PumpError, match="no handler"):
        await Harness(empty).__aenter__()

    assert empty.gateway_name == "local://never/touched"


async def _fail(request: PlaceOrder) -> None:
    raise ValueError("always")

"""Retries between slices, on brokers that say little of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from pump import App, Backoff, Subscription, hybrid
from pump.message import new_id
from pump.spark.run.summary import Ended

from .rig import Here, Order, Rig

# The probe of a broker that only estimates comes after five seconds.
pytestmark = [pytest.mark.broker, pytest.mark.timeout(90)]

UrlOf = Callable[[pytest.FixtureRequest], str]


def _nats(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("nats").url)


def _rabbitmq(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("rabbitmq_url"))


@pytest.mark.parametrize("url_of", [_nats, _rabbitmq], ids=["nats", "rabbitmq"])
async def test_when_retries_wait_between_slices_then_a_run_until_empty_waits_for_them(
    tmp_path: Path, request: pytest.FixtureRequest, url_of: UrlOf
) -> None:
    """R78: works with any gateway that machines share. NATS counts what is due as in flight until
    somebody receives; RabbitMQ keeps retries in a queue that the driver's gateway has not seen.
    """
    rig, queue = Rig(tmp_path), f"orders-{new_id()}"
    rig.app = App(url_of(request), spill=tmp_path / "spill.db")
    rig.app.register(Order, rig._handle)
    rig.subscription = rig.app.subscribe(
        Subscription(
            queue=queue,
            request=Order,
            dead_letter_queue=f"{queue}-dead",
            # Longer than a task looks.
            failure=hybrid(max_retries=2, backoff=Backoff(initial=timedelta(seconds=4))),
        )
    )
    await rig.send(5)

    async def fail_once(order: Order) -> None:
        if order.n < 2 and rig.handled.count(order.n) == 1:
            raise ValueError("not yet")

    rig.behaviour = fail_once
    run = await rig.run(Here(rig), until_empty=True)

    assert run.ended is Ended.EMPTY
    assert run.counts[queue].processed == 5
    assert sorted(rig.handled) == [0, 0, 1, 1, 2, 3, 4]

"""Hundreds of consumers in several processes, which share nothing but a bucket."""

from __future__ import annotations

import pytest

from pump import App
from pump.subscription import MakeChannels

from .child_s3 import build, job
from .s3_processes import Bucket, Company

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

PROCESSES = 4
ONE = -1
"""A job that is held, not acked."""
LEASE_S = 600.0
"""It stays held for longer than the test may take."""


async def make_queues(app: App) -> None:
    for subscription in app.subscriptions:
        for spec in subscription.queue_specs():
            await app.admin.ensure(spec, MakeChannels.CREATE)


@pytest.mark.parametrize("layout", ["leases", "log"])
@pytest.mark.parametrize("consumer_count", [100, 300])
async def test_when_hundreds_ask_for_one_message_then_one_gets_it_and_many_are_shared_out(
    bucket: Bucket, layout: str, consumer_count: int
) -> None:
    """R12, R13, R47: one winner; and of as many messages as consumers, each is delivered once."""
    url = bucket.url(layout)
    async with build(url, lease_s=60) as app, Company(url) as company:
        await make_queues(app)
        producer = app.gateway.producer("jobs")
        for _ in range(PROCESSES):
            await company.start("ask", consumer_count // PROCESSES, lease_s=LEASE_S)
        await company.ready()

        await producer.send([job(ONE)])
        await company.until(lambda: bool(company.said("got")))
        await producer.send([job(number) for number in range(consumer_count)])
        await company.until(lambda: len(company.said("confirmed")) == consumer_count)
        stats = await app.admin.stats("jobs")
        await company.dismiss(*company.children)

    every = [ONE, *range(consumer_count)]
    assert company.said("got") == dict.fromkeys(every, 1)
    assert company.said("confirmed") == dict.fromkeys(range(consumer_count), 1)
    assert company.said("refused") == {}
    assert {line.attempt for line in company.lines("got")} == {1}
    assert (stats.visible, stats.in_flight) == (0, 1)

"""Fewer connections than pollers: everybody's turn comes, and waiting costs no lease (R54)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pump import Subscription

from .bench import ONE_TRANSPORT, Bench, Job

pytestmark = [pytest.mark.broker, ONE_TRANSPORT]
OTHERS = [f"other-{number}" for number in range(4)]
WAIT = timedelta(seconds=3)
LEASE = timedelta(seconds=9)
"""Shorter than the line, which is four polls long."""


async def test_when_pollers_wait_in_line_for_a_connection_then_no_lease_is_lost(
    bench: Bench,
) -> None:
    """R54: one connection for the polls of five queues, four of them idle."""
    gateway = await bench.gateway(max_connections=2)
    shop = bench.shop(gateway=gateway, lease=LEASE, wait=WAIT)
    for queue in OTHERS:
        shop.app.subscribe(Subscription(queue=queue, request=Job, wait=WAIT))

    async with shop.working() as dispatcher:
        await shop.post(*(str(number) for number in range(10)))
        await shop.diary.until_settled(10)
        await shop.post("one more")
        await shop.diary.until_settled(11)
        stats = [each.stats for each in dispatcher.performers]

    assert shop.diary.statuses == ["processed"] * 11
    assert [each.attempt for each in shop.diary.outcomes] == [1] * 11
    assert [(each.leases_lost, each.restarts) for each in stats] == [(0, 0)] * 5

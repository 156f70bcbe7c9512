"""Order on FIFO queues, with handlers that fail and a road that loses things."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from pump.backoff import Backoff
from pump.subscription import retry
from tests.brokers.aws_account import AwsAccount
from tests.brokers.fault_plan import NO_FAULTS, FaultPlan

from .bench import ONE_TRANSPORT, Bench, Job
from .wiretap import Wiretap

pytestmark = [pytest.mark.broker, ONE_TRANSPORT]
AT_ONCE = Backoff(initial=timedelta(0), maximum=timedelta(0))
SOON = Backoff(initial=timedelta(seconds=1), maximum=timedelta(seconds=1), jitter=0.5)


CASES = pytest.mark.parametrize(
    ("is_strict", "backoff"),
    [(True, AT_ONCE), (True, SOON), (False, AT_ONCE), (False, SOON)],
    ids=["guaranteed, at once", "guaranteed, later", "by group, at once", "by group, later"],
)


@pytest.fixture
def aws(local_aws: AwsAccount) -> AwsAccount:
    """`pump local`: LocalStack gives out the successors of a message that is hidden, which one is
    while its deferral is asked for again; AWS gives nothing of a group of which one is in flight.
    """
    return local_aws


@CASES
@pytest.mark.parametrize("rate", [0.0, 0.05], ids=["good road", "bad road"])
async def test_when_handlers_fail_and_answers_are_lost_then_each_group_stays_in_order(
    bench: Bench, is_strict: bool, rate: float, backoff: Backoff
) -> None:
    """R37, R38, T7: a retried head blocks its successors, also those of another consumer."""
    groups, length = 6, 10
    done: defaultdict[str, list[int]] = defaultdict(list)
    tried: set[str] = set()
    all_done = asyncio.Event()

    async def handle(job: Job) -> None:
        group, number = job.task.split()
        if int(number) % 4 == 1 and job.task not in tried:
            tried.add(job.task)
            raise ValueError("told to")
        done[group].append(int(number))
        if sum(len(set(each)) for each in done.values()) == groups * length:
            all_done.set()

    plan = FaultPlan.random(7, rate=rate) if rate else NO_FAULTS
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(Wiretap(bench.aws.endpoint_url, plan))
        shops = [
            bench.shop(
                handle,
                gateway=await bench.gateway(bench.aws.through(proxy.url)),
                queue="jobs.fifo",
                dead_letter_queue="dead.fifo",
                ordering_guarantee=is_strict,
                failure=retry(None, backoff=backoff),
                lease=timedelta(seconds=5),
            )
            for _ in range(2)
        ]
        for shop in shops:
            await stack.enter_async_context(shop.working())
        await stack.enter_async_context(asyncio.timeout(100))
        for number in range(length):
            for group in range(groups):
                await shops[0].post(f"{group} {number}", group=f"g-{group}")
        await all_done.wait()

    firsts = {group: list(dict.fromkeys(numbers)) for group, numbers in done.items()}
    assert firsts == {str(group): list(range(length)) for group in range(groups)}

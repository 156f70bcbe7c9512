"""Consumers that stop, and consumers that share a queue: no message is hidden from the others."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from pump.clock import SYSTEM_CLOCK
from pump.events import OutcomeEvent

from .bench import ONE_TRANSPORT, Bench, Job
from .plain_sqs import packed
from .wiretap import Wiretap

pytestmark = [pytest.mark.broker, ONE_TRANSPORT]
VERY_LONG = timedelta(minutes=30)
"""A lease that no test waits for: what a dying poll hides stays hidden."""


@pytest.mark.parametrize("ending", ["drain", "stop now"])
async def test_when_a_message_comes_after_the_drain_began_then_the_open_poll_does_not_hide_it(
    bench: Bench, suffix: str, ending: str
) -> None:
    """R4, law 5: the long poll is still open at the server, and gets the message."""
    async with Wiretap(bench.aws.endpoint_url) as proxy:
        gateway = await bench.gateway(bench.aws.through(proxy.url))
        shop = bench.shop(
            gateway=gateway, queue=f"jobs{suffix}", lease=VERY_LONG, wait=timedelta(seconds=8)
        )
        async with shop.app:
            dispatcher = shop.app.dispatcher()
            running = asyncio.create_task(dispatcher.run())
            await proxy.saw("ReceiveMessage")
            if ending == "drain":
                dispatcher.drain()
            else:
                dispatcher.stop_now()
            sent = await bench.plain.send(f"jobs{suffix}", '{"task": "late"}')
            await asyncio.wait([running])

    [found] = await bench.plain.take(f"jobs{suffix}")
    assert found["MessageId"] == sent
    assert shop.diary.statuses == []


async def test_when_messages_pour_in_during_the_drain_then_none_is_hidden_and_none_lost(
    bench: Bench, suffix: str
) -> None:
    """Law 5: what was started is finished, everything else is there for others at once."""
    handled: Counter[str] = Counter()

    async def handle(job: Job) -> None:
        handled[job.task] += 1
        await SYSTEM_CLOCK.sleep(0.2)

    shop = bench.shop(
        handle, queue=f"jobs{suffix}", lease=VERY_LONG, concurrency=5, wait=timedelta(seconds=3)
    )
    tasks = [str(number) for number in range(80)]
    async with shop.app:
        dispatcher = shop.app.dispatcher()
        running = asyncio.create_task(dispatcher.run())
        await dispatcher.channels_made.wait()
        for start in range(0, 80, 10):
            await asyncio.gather(
                *(shop.app.post(Job(task), group=task) for task in tasks[start : start + 10])
            )
            if start == 30:
                dispatcher.drain()
        await asyncio.wait([running])

    assert set(handled.values()) <= {1}
    assert len(shop.diary.outcomes) == len(handled) < 80
    left = await bench.plain.take(f"jobs{suffix}", 80 - len(handled))
    bodies = {str(task) for task in handled} | {each["Body"].split('"')[3] for each in left}
    assert bodies == set(tasks)


async def test_when_two_gateways_share_a_queue_then_each_message_is_handled_by_one_of_them(
    bench: Bench, suffix: str
) -> None:
    """R12, R34, R53."""
    handled: list[tuple[str, str]] = []
    all_done = asyncio.Event()
    count = 150

    def worker(name: str) -> Callable[[Job], Awaitable[None]]:
        async def handle(job: Job) -> None:
            handled.append((name, job.task))
            await SYSTEM_CLOCK.sleep(0.02)
            if len(handled) >= count:
                all_done.set()

        return handle

    shops = [
        bench.shop(
            worker(name),
            queue=f"jobs{suffix}",
            dead_letter_queue=f"dead{suffix}",
            prefetch=0,
        )
        for name in ("one", "other")
    ]
    async with shops[0].working(), shops[1].working(), asyncio.timeout(60):
        for number in range(0, count, 10):
            await asyncio.gather(
                *(shops[0].app.post(Job(f"{number + i}"), group=f"{i}") for i in range(10))
            )
        await all_done.wait()

    assert Counter(task for _, task in handled) == Counter(str(number) for number in range(count))
    assert {name for name, _ in handled} == {"one", "other"}
    settled = [each for shop in shops for each in shop.diary.events]
    outcomes = [each for each in settled if isinstance(each, OutcomeEvent)]
    assert len({each.message_id for each in outcomes}) == len(outcomes) == count
    assert await bench.plain.depth(f"jobs{suffix}") == (0, 0, 0)


async def test_when_groups_share_a_fifo_queue_then_each_group_stays_in_order_across_consumers(
    bench: Bench,
) -> None:
    """R38: two gateways, ten groups, strict order inside each."""
    handled: dict[str, list[int]] = {}
    count = 0
    all_done = asyncio.Event()

    async def handle(job: Job) -> None:
        nonlocal count
        group, number = job.task.split()
        handled.setdefault(group, []).append(int(number))
        await SYSTEM_CLOCK.sleep(0.01)
        count += 1
        if count == 100:
            all_done.set()

    shops = [bench.shop(handle, queue="jobs.fifo", dead_letter_queue="dead.fifo") for _ in "ab"]
    async with shops[0].working(), shops[1].working(), asyncio.timeout(60):
        for number in range(10):
            for group in range(10):
                await shops[0].app.post(Job(f"{group} {number}"), group=f"{group}")
        await all_done.wait()

    assert handled == {str(group): list(range(10)) for group in range(10)}


async def test_when_a_receive_is_cancelled_then_what_its_poll_brings_is_given_back(
    bench: Bench, suffix: str
) -> None:
    """R4: cancelling hides nothing, even under a lease of half an hour."""
    shop = bench.shop(queue=f"jobs{suffix}", lease=VERY_LONG)
    async with Wiretap(bench.aws.endpoint_url) as proxy:
        gateway = await bench.gateway(bench.aws.through(proxy.url))
        consumer = gateway.consumer(shop.subscription)
        await bench.plain.make(f"jobs{suffix}")
        receiving = asyncio.create_task(consumer.receive(max_count=10, wait_s=15))
        await proxy.saw("ReceiveMessage")
        receiving.cancel()
        await asyncio.wait([receiving])
        async with shop.app:
            [id_] = await shop.post("work")
        [found] = await bench.plain.take(f"jobs{suffix}")
        await consumer.aclose()

    assert receiving.cancelled()
    assert packed(found)["id"] == id_


async def test_when_the_broker_is_away_then_a_drain_still_ends_and_nothing_is_lost(
    bench: Bench, suffix: str
) -> None:
    """Law 5, R51: what could not be acked comes again when its lease is over."""
    started = asyncio.Event()
    finish = asyncio.Event()

    async def handle(job: Job) -> None:
        started.set()
        await finish.wait()

    async with Wiretap(bench.aws.endpoint_url) as proxy:
        gateway = await bench.gateway(bench.aws.through(proxy.url))
        shop = bench.shop(
            handle,
            gateway=gateway,
            queue=f"jobs{suffix}",
            lease=timedelta(seconds=6),
            drain_timeout=timedelta(seconds=3),
        )
        async with asyncio.timeout(60), shop.working():
            [id_] = await shop.post("work")
            await started.wait()
            await proxy.sever()
            finish.set()

    assert shop.diary.statuses == []
    [found] = await bench.plain.take(f"jobs{suffix}")
    assert packed(found)["id"] == id_

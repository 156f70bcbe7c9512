"""Jobs for a pump, and the care that callers take while a broker comes and goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from pump import App, Command, Subscription, hybrid
from pump.backoff import RECONNECT, Backoff
from pump.clock import SYSTEM_CLOCK
from pump.errors import GatewayError, SendFailed
from pump.message import Delivery, Message
from pump.ports import Gateway
from pump.subscription import MakeChannels

PATIENCE_S = 200.0


class Job(Command):
    number: int


def a_job(number: int) -> Message:
    return Message(body=f'{{"number": {number}}}'.encode(), type="Job")


def a_job_subscription(queue: str, **fields: Any) -> Subscription:
    pause = timedelta(milliseconds=200)
    fields.setdefault("lease", timedelta(seconds=10))
    fields.setdefault("failure", hybrid(50, backoff=Backoff(initial=pause, maximum=pause)))
    return Subscription(
        queue=queue,
        request=Job,
        wait=timedelta(seconds=2),
        dead_letter_queue=f"{queue}-dead",
        invalid_queue=f"{queue}-invalid",
        **fields,
    )


async def make(gateway: Gateway, subscription: Subscription) -> None:
    for spec in subscription.queue_specs():
        await gateway.admin().ensure(spec, MakeChannels.CREATE)


async def send_surely(
    gateway: Gateway, queue: str, message: Message, *, delay_s: float = 0.0
) -> None:
    """As a careful sender does it: again, until the broker has confirmed it."""
    for attempt in range(1, 200):
        try:
            await gateway.producer(queue).send([message], delay_s=delay_s)
            return
        except (GatewayError, SendFailed):
            pause_s = min(1.0, RECONNECT.delay_s(attempt, SYSTEM_CLOCK.chance()))
            await SYSTEM_CLOCK.sleep(pause_s)
    raise AssertionError("never sent")


async def receive_surely(
    gateway: Gateway, subscription: Subscription, max_count: int = 1
) -> Sequence[Delivery]:
    """What a consumer of the queue receives next, once the broker is back."""
    consumer = gateway.consumer(subscription)
    for _ in range(100):
        try:
            if received := await consumer.receive(max_count=max_count, wait_s=1):
                return received
        except GatewayError:
            await SYSTEM_CLOCK.sleep(0.05)
    raise AssertionError("never received")


async def work_off(
    gateway: Gateway,
    subscription: Subscription,
    jobs: int,
    *,
    disturb: Callable[[int], None] = lambda number: None,
) -> list[int]:
    """Let a pump handle jobs while they are sent, until each was handled; what was handled.

    `disturb` is called as a job is sent, and as it is handled for the first time.
    """
    handled: list[int] = []
    done = asyncio.Event()

    async def handle(job: Job) -> None:
        if job.number not in handled:
            disturb(job.number)
        handled.append(job.number)
        if len(set(handled)) == jobs:
            done.set()

    app = App(gateway)
    app.register(Job, handle)
    app.subscribe(subscription)
    async with app:
        dispatcher = app.dispatcher()
        running = asyncio.create_task(dispatcher.run())
        await dispatcher.channels_made.wait()
        for number in range(jobs):
            sending = asyncio.create_task(send_surely(gateway, subscription.queue, a_job(number)))
            disturb(number)
            await sending
        await asyncio.wait_for(done.wait(), PATIENCE_S)
        dispatcher.drain()
        await running
    return handled

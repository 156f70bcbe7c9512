"""The children of the S3 kill tests: each says on its standard output what it does.

python -m tests.kill.child_s3 URL LEASE_S ask COUNT    COUNT consumers take one job at a time
python -m tests.kill.child_s3 URL LEASE_S hold COUNT   take COUNT jobs, then do as told
python -m tests.kill.child_s3 URL LEASE_S pump PAUSE   an app that handles jobs until a signal
python -m tests.kill.child_s3 URL LEASE_S poison 0     the same, with a limit of three deliveries
python -m tests.kill.child_s3 URL LEASE_S send START   send SENT jobs from START on

A line is a word, the job's number and its attempt. `ask` and `hold` say `ready` first and end with
their standard input; `ask` acks what it got unless the number is below zero, `hold` reads lines
such as `ack 3`, and says `confirmed` or `refused`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from pump import App, Command, RejectMessage, Subscription, current_context
from pump.errors import GatewayError
from pump.message import Delivery, Message
from pump.outcome import Refusal, Settlement
from pump.ports import ConsumerPort
from pump.testing import abandon, ack, defer

REJECTED = 25
"""Jobs whose number this divides are rejected."""
DEADLY = 1_000_000
"""Jobs from this number on end the process that handles them."""
MAX_RECEIVE_COUNT = 3
SENT = 200
"""Jobs of one sender."""


class Job(Command):
    number: int


def build(url: str, *, lease_s: float = 30.0, max_receive_count: int | None = None) -> App:
    """The app that both sides of the tests share."""
    app = App(url)
    app.subscribe(
        Subscription(
            queue="jobs",
            request=Job,
            dead_letter_queue="dead",
            max_receive_count=max_receive_count,
            on_routing_failure="keep",
            concurrency=10,
            prefetch=10,
            lease=timedelta(seconds=lease_s),
            wait=timedelta(seconds=5),
        )
    )
    return app


def job(number: int) -> Message:
    return Message(body=msgspec.json.encode({"number": number}))


def number_of(message: Message) -> int:
    number: int = msgspec.json.decode(message.body)["number"]
    return number


def say(word: str, number: int = 0, attempt: int = 0) -> None:
    """One line in one write, so that a kill cannot tear it and the pipe keeps it."""
    os.write(1, f"{word} {number} {attempt}\n".encode())


async def told() -> str:
    """The next line of standard input; empty at its end."""
    return await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


async def ask(app: App, count: int) -> None:
    """As many consumers as `count`, until standard input ends."""
    async with app:
        [subscription] = app.subscriptions
        consumers = [app.gateway.consumer(subscription) for _ in range(count)]
        asking = [asyncio.create_task(take_and_ack(each)) for each in consumers]
        ending = asyncio.create_task(told())
        say("ready")
        await asyncio.wait([ending, *asking], return_when=asyncio.FIRST_COMPLETED)
        for task in asking:
            task.cancel()
        ended = await asyncio.gather(*asking, return_exceptions=True)
        for error in ended:
            if not isinstance(error, asyncio.CancelledError) and error is not None:
                raise error
        for consumer in consumers:
            await consumer.aclose()


async def take_and_ack(consumer: ConsumerPort) -> None:
    while True:
        for delivery in await consumer.receive(max_count=1, wait_s=30):
            number = number_of(delivery.message)
            say("got", number, delivery.attempt)
            if number >= 0:
                answer(delivery, await consumer.settle([ack(delivery)]))


def answer(delivery: Delivery, refusals: Sequence[Refusal]) -> None:
    word = "refused" if refusals else "confirmed"
    say(word, number_of(delivery.message), delivery.attempt)


async def hold(app: App, count: int, lease_s: float) -> None:
    """Take `count` jobs and do with each what standard input says."""
    async with app:
        [subscription] = app.subscriptions
        consumer = app.gateway.consumer(subscription)
        say("ready")
        held: dict[int, Delivery] = {}
        while len(held) < count:
            for each in await consumer.receive(max_count=count - len(held), wait_s=30):
                held[number_of(each.message)] = each
                say("got", number_of(each.message), each.attempt)
        while line := await told():
            word, number = line.split()
            delivery = held[int(number)]
            if word == "extend":
                refusals = await consumer.extend([delivery], lease_s=lease_s)
            else:
                refusals = await consumer.settle([settlement(word, delivery)])
            answer(delivery, refusals)
        await consumer.aclose()


def settlement(word: str, delivery: Delivery) -> Settlement:
    match word:
        case "ack":
            return ack(delivery)
        case "defer":
            return defer(delivery, seconds=0)
        case _:
            return abandon(delivery)


def pump(app: App, pause_s: float) -> None:
    """Handle jobs until a signal."""

    @app.handler
    async def handle(job: Job) -> None:
        context = current_context()
        attempt = 0 if context is None else context.attempt
        say("start", job.number, attempt)
        if job.number >= DEADLY:
            os._exit(9)
        if job.number % REJECTED == 0:
            raise RejectMessage("told to")
        if pause_s:
            await asyncio.sleep(pause_s)
        say("end", job.number, attempt)

    app.run()


async def send(app: App, start: int) -> None:
    """Two senders side by side, five jobs a send; says what was confirmed, and waits at the end."""
    async with app:
        producer = app.gateway.producer("jobs")

        async def send_on(first: int) -> None:
            while first < start + SENT:
                numbers = range(first, first + 5)
                try:
                    await producer.send([job(number) for number in numbers])
                except GatewayError as error:
                    sys.stderr.write(f"not sent: {error}\n")
                else:
                    for number in numbers:
                        say("sent", number)
                first += 10
                await asyncio.sleep(0.02)

        await asyncio.gather(send_on(start), send_on(start + 5))
        await told()


def main() -> None:
    """Do what the arguments say."""
    url, lease_s, mode, number = sys.argv[1], float(sys.argv[2]), sys.argv[3], sys.argv[4]
    limit = MAX_RECEIVE_COUNT if mode == "poison" else None
    app = build(url, lease_s=lease_s, max_receive_count=limit)
    match mode:
        case "ask":
            asyncio.run(ask(app, int(number)))
        case "hold":
            asyncio.run(hold(app, int(number), lease_s))
        case "pump" | "poison":
            pump(app, float(number))
        case "send":
            asyncio.run(send(app, int(number)))


if __name__ == "__main__":
    main()

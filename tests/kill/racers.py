"""A hundred processes that ask for one message at the same moment: `python -m tests.kill.racers`.

Reads its task as JSON from standard input, and prints one line: how many deliveries each got.
Everything is imported once and then forked, so that a hundred fit on a small machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import botocore.session

from gateways.local import LocalGateway
from gateways.s3 import Layout, S3Gateway, S3Settings
from gateways.sqs import AwsSettings, Credentials, SqsGateway, SqsSettings, TransportKind
from pump import Subscription
from pump.errors import GatewayError
from pump.ports import Gateway
from pump.testing.builders import a_message

T = TypeVar("T")
MOST = b"\xff"
"""What a process says that failed."""


def main() -> None:
    """Send one message, have all ask for it, and say what came of it."""
    task = json.load(sys.stdin)
    for package in ("aiohttp", "boto3"):
        import_module(package)
    # Parsing the models of services is most of what opening a gateway takes.
    loader = botocore.session.create_loader()
    for service in ("sqs", "s3"):
        loader.load_service_model(service, "service-2")
    botocore.session.create_loader = lambda *_: loader
    if os.waitpid(forked(lambda: asyncio.run(send(task))), 0)[1]:
        raise SystemExit("the message could not be sent")
    print(json.dumps(race(task)), flush=True)


def race(task: dict[str, Any]) -> list[int]:
    """The number of deliveries that each process got; all leave their leases when all are done."""
    ready, results, start, end = os.pipe(), os.pipe(), os.pipe(), os.pipe()

    def run() -> None:
        os.close(start[1])
        os.close(end[1])
        asyncio.run(ask(task, ready[1], results[1], start[0], end[0]))

    processes = [forked(run) for _ in range(task["count"])]
    for mine in (start[0], end[0]):
        os.close(mine)
    exactly(ready[0], len(processes))
    os.close(start[1])  # all are told at once
    counts = list(exactly(results[0], len(processes)))
    os.close(end[1])
    for process in processes:
        os.waitpid(process, 0)
    return counts


async def ask(task: dict[str, Any], ready: int, results: int, start: int, end: int) -> None:
    """Open, wait for the others, ask once, and hold what came until all have their answer."""
    answer = MOST
    try:
        gateway = gateway_of(task)
        await answered(gateway.open)
        consumer = gateway.consumer(subscription_of(task))
        os.write(ready, b"r")
        await asyncio.to_thread(os.read, start, 1)
        found = await answered(lambda: consumer.receive(max_count=1, wait_s=task["wait_s"]))
        answer = bytes([len(found)])
    finally:
        if answer is MOST:
            os.write(ready, b"r")
        os.write(results, answer)
    await asyncio.to_thread(os.read, end, 1)
    await gateway.aclose()


async def answered(ask_for: Callable[[], Awaitable[T]]) -> T:
    """Ask until there is an answer: a server with a hundred callers at once refuses some."""
    while True:
        try:
            return await ask_for()
        except GatewayError:
            await asyncio.sleep(0.2)


async def send(task: dict[str, Any]) -> None:
    """Make the queue, and put the one message into it."""
    gateway, subscription = gateway_of(task), subscription_of(task)
    await gateway.open()
    for spec in subscription.queue_specs():
        await gateway.admin().ensure(spec, subscription.make_channels)
    await gateway.producer(subscription.queue).send([a_message()])
    await gateway.aclose()


def gateway_of(task: dict[str, Any]) -> Gateway:
    """The gateway that a task is about."""
    if task["gateway"] == "local":
        return LocalGateway(Path(task["path"]))
    aws = AwsSettings(
        region=task["region"],
        endpoint_url=task["endpoint_url"],
        credentials=Credentials(access_key_id=task["key"], secret_access_key=task["secret"]),
        transport=TransportKind.LEAN,
        connect_timeout_s=60.0,
    )
    if task["gateway"] == "s3":
        layout = Layout(task["layout"])
        return S3Gateway(S3Settings(bucket=task["bucket"], prefix="r13", aws=aws, layout=layout))
    return SqsGateway(SqsSettings(aws=aws))


def subscription_of(task: dict[str, Any]) -> Subscription:
    """A lease that outlasts the race."""
    return Subscription(queue=task["queue"], request=dict, lease=timedelta(minutes=10))


def forked(run: Callable[[], None]) -> int:
    """The id of a process that runs this and ends."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        run()
        code = 0
    finally:
        os._exit(code)


def exactly(pipe: int, count: int) -> bytes:
    """So many bytes from a pipe."""
    octets = b""
    while len(octets) < count:
        octets += os.read(pipe, count - len(octets))
    return octets


if __name__ == "__main__":
    main()

"""The designs of a queue on S3: both of our layouts, and the naive one. Each sends and consumes.

As a program it is consumers in a process of their own: open, say so, and consume from a line on.
It prints how many messages are done whenever that has changed, until standard input ends:

    python -m benchmarks.contenders.s3_designs ENDPOINT log 100 0 1
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import attrs

from pump import App, Command, Subscription
from pump.event_loop import run as run_loop
from pump.stores.spill import MemorySpill

BUCKET = "benchmark"
REGION = "us-east-1"
QUEUE = "ticks"
NAIVE = "naive"
_SENDERS_CONNECTIONS = 200
_LOOK_S = 0.01
_MESSAGES, _LEASES = "messages/", "leases/"
_PAUSE_S = 0.1

Send = Callable[[Sequence[int]], Awaitable[None]]
DoneCount = Callable[[], int]


@attrs.frozen(kw_only=True)
class ConsumerSettings:
    """Where, how many consumers, and which of how many processes this is."""

    endpoint: str
    design: str
    consumers: int = 1
    process: int = 0
    processes: int = 1


@asynccontextmanager
async def sending(settings: ConsumerSettings) -> AsyncIterator[Send]:
    """An open sender; the queue is there."""
    if settings.design == NAIVE:
        async with _naive_client(settings.endpoint, _SENDERS_CONNECTIONS) as client:
            yield _NaiveQueue(client).send
        return
    app = _make_app(settings.endpoint, settings.design)
    async with app:

        async def send(numbers: Sequence[int]) -> None:
            await app.post_all([Tick(number) for number in numbers])

        yield send


@asynccontextmanager
async def consuming(
    settings: ConsumerSettings, go: Callable[[], Awaitable[None]]
) -> AsyncIterator[DoneCount]:
    """Consumers that are open, wait for `go`, and work inside the body; how much they have done."""
    if settings.design == NAIVE:
        async with _naive_consumers(settings, go) as done:
            yield done
        return
    app = _make_app(settings.endpoint, settings.design, settings.consumers)
    async with app:
        await go()
        dispatcher = app.dispatcher()
        async with asyncio.TaskGroup() as group:
            group.create_task(dispatcher.run())
            yield lambda: sum(each.stats.processed for each in dispatcher.performers)
            dispatcher.drain()


@asynccontextmanager
async def _naive_consumers(
    settings: ConsumerSettings, go: Callable[[], Awaitable[None]]
) -> AsyncIterator[DoneCount]:
    async with _naive_client(settings.endpoint, settings.consumers + 1) as client:
        queue = _NaiveQueue(client, share=settings.process, shares=settings.processes)
        await go()
        async with asyncio.TaskGroup() as group:
            for _ in range(settings.consumers):
                group.create_task(queue.consume())
            yield lambda: queue.done_count
            queue.is_stopped = True


# Ours: one command, a handler that does nothing, default settings.


class Tick(Command):
    """What is sent."""

    number: int


async def tick(request: Tick) -> None:
    pass


def _make_app(endpoint: str, layout: str, consumers: int = 1) -> App:
    """One subscription; `consumers` of its handlers may run at once."""
    url = f"s3://{BUCKET}?endpoint={endpoint}&region={REGION}&layout={layout}"
    # A benchmark leaves no data folder behind.
    app = App(url, spill=MemorySpill())
    app.register(Tick, tick)
    app.subscribe(
        Subscription(queue=QUEUE, request=Tick, concurrency=consumers, wait=timedelta(seconds=2))
    )
    return app


# The naive design: one object a message and one a lease, with raw aioboto3. A message is a PUT. A
# consumer takes a key from the latest listing, PUTs a lease if there is none, GETs the message,
# handles it, and DELETEs message and lease. Nothing is fenced and no lease is ever renewed or taken
# over: it is what one writes in an afternoon. To its favour, all consumers of a process share one
# listing, and start where no other process does.


class _NaiveQueue:
    """The queue, seen by one process."""

    def __init__(self, client: Any, *, share: int = 0, shares: int = 1) -> None:
        self._client = client
        self._share, self._shares = share, shares
        self._keys: list[str] = []
        self._taken: set[str] = set()
        self._listing = asyncio.Lock()
        self.done_count = 0
        self.is_stopped = False

    async def send(self, numbers: Sequence[int]) -> None:
        """All of them at once, one PUT each."""
        await asyncio.gather(
            *(
                self._client.put_object(
                    Bucket=BUCKET,
                    Key=f"{_MESSAGES}{number:012d}",
                    Body=json.dumps({"number": number}),
                )
                for number in numbers
            )
        )

    async def consume(self) -> None:
        """One consumer, until they are stopped."""
        while (key := await self._next_key()) is not None:
            if not await self._claim(key):
                continue
            if (body := await self._read(key)) is not None:
                json.loads(body)
                await self._client.delete_object(Bucket=BUCKET, Key=key)
            await self._client.delete_object(Bucket=BUCKET, Key=self._lease(key))
            self.done_count += body is not None

    async def _next_key(self) -> str | None:
        async with self._listing:
            while not self._keys:
                if self.is_stopped:
                    return None
                reply = await self._client.list_objects_v2(Bucket=BUCKET, Prefix=_MESSAGES)
                found = [each["Key"] for each in reply.get("Contents", ())]
                self._keys = [key for key in found if key not in self._taken]
                # Each process begins elsewhere, or all would claim the same.
                start = len(self._keys) * self._share // self._shares
                self._keys = (self._keys[start:] + self._keys[:start])[::-1]
                if not self._keys:
                    await asyncio.sleep(_PAUSE_S)
            key = self._keys.pop()
            self._taken.add(key)
            return key

    async def _read(self, key: str) -> bytes | None:
        """None when another process was done with it between our listing and our lease."""
        try:
            reply = await self._client.get_object(Bucket=BUCKET, Key=key)
            body: bytes = await reply["Body"].read()
            return body
        except self._client.exceptions.ClientError as error:
            if error.response["Error"]["Code"] == "NoSuchKey":
                return None
            raise

    async def _claim(self, key: str) -> bool:
        try:
            await self._client.put_object(
                Bucket=BUCKET, Key=self._lease(key), Body=b"mine", IfNoneMatch="*"
            )
        except self._client.exceptions.ClientError as error:
            if error.response["Error"]["Code"] == "PreconditionFailed":
                return False
            raise
        return True

    def _lease(self, key: str) -> str:
        return _LEASES + key.removeprefix(_MESSAGES)


@asynccontextmanager
async def _naive_client(endpoint: str, connections: int) -> AsyncIterator[Any]:
    """A client with as many connections as may be used at once."""
    import aioboto3
    from aiobotocore.config import AioConfig

    config = AioConfig(max_pool_connections=connections)
    session = aioboto3.Session(region_name=REGION)
    async with session.client("s3", endpoint_url=endpoint, config=config) as client:
        # The first call of an SDK costs more than the others; Pumphouse has probed by then.
        await client.list_objects_v2(Bucket=BUCKET, Prefix="warm-up/")
        yield client


# Consumers in a process of their own.


async def consume(settings: ConsumerSettings) -> None:
    """Consume from the first line on standard input to its end."""
    started, ended = asyncio.Event(), asyncio.Event()

    def read_input() -> None:
        # Not in a thread: one that waits for input would outlive consumers that break.
        (started if os.read(0, 100) else ended).set()

    async def go() -> None:
        print("ready", flush=True)
        await started.wait()

    asyncio.get_running_loop().add_reader(0, read_input)
    async with consuming(settings, go) as done:
        printed = 0
        while not ended.is_set():
            if (now := done()) != printed:
                printed = now
                print(printed, flush=True)
            await asyncio.sleep(_LOOK_S)
        asyncio.get_running_loop().remove_reader(0)
    if done() != printed:
        print(done(), flush=True)


if __name__ == "__main__":
    endpoint, design, *numbers = sys.argv[1:]
    consumers, process, processes = map(int, numbers)
    run_loop(
        consume(
            ConsumerSettings(
                endpoint=endpoint,
                design=design,
                consumers=consumers,
                process=process,
                processes=processes,
            )
        )
    )

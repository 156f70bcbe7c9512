"""Measure the embedded gateways: `python -m tests.gateways.measure_local [messages]`.

Prints messages a second, sent → received → acked, and as a share of raw SQLite (insert only,
groups of 100, synchronous=FULL) in the same run: the machine's mood is in both.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time

import attrs

from gateways.local import LocalGateway
from gateways.memory import MemoryGateway
from pump.message import Message
from pump.outcome import ACK, Settlement
from pump.ports import Gateway
from pump.subscription import MakeChannels, QueueSpec, Subscription

GROUP = 100
BODY = b"x" * 100


@attrs.frozen
class Figure:
    rate: float
    cpu_us: float


def raw_rate(count: int, folder: Path) -> float:
    connection = sqlite3.connect(folder / "raw.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE messages (seq INTEGER PRIMARY KEY, packed BLOB)")
    start_s = perf_counter()
    for group in range(count // GROUP):
        connection.execute("BEGIN")
        rows = [(group * GROUP + n, BODY * 2) for n in range(GROUP)]
        connection.executemany("INSERT INTO messages VALUES (?, ?)", rows)
        connection.execute("COMMIT")
    rate = count / (perf_counter() - start_s)
    connection.close()
    return rate


async def pass_through(gateway: Gateway, count: int, concurrency: int) -> Figure:
    await gateway.open()
    await gateway.admin().ensure(QueueSpec(name="q"), MakeChannels.CREATE)
    producer = gateway.producer("q")
    consumer = gateway.consumer(Subscription(queue="q", request=dict))
    left = [count] * 2

    async def produce() -> None:
        while left[0] > 0:
            left[0] -= GROUP
            await producer.send([Message(body=BODY) for _ in range(GROUP)])

    async def consume() -> None:
        while left[1] > 0:
            deliveries = await consumer.receive(max_count=GROUP, wait_s=0.1)
            await consumer.settle([Settlement(each, ACK) for each in deliveries])
            left[1] -= len(deliveries)

    start_s, cpu_s = perf_counter(), process_time()
    workers = [work() for work in (produce, consume) for _ in range(concurrency)]
    await asyncio.gather(*workers)
    took_s, cpu_s = perf_counter() - start_s, process_time() - cpu_s
    await gateway.aclose()
    return Figure(count / took_s, cpu_s / count * 1e6)


async def main(count: int) -> None:
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name)
        memory = await pass_through(MemoryGateway(), count, 1)
        print(f"memory               {memory.rate:>9,.0f} msg/s  {memory.cpu_us:5.1f} µs CPU")
        for concurrency in (1, 4):
            raw = await asyncio.to_thread(raw_rate, count, folder)
            (folder / "raw.db").unlink()
            local = LocalGateway(folder / f"queues-{concurrency}")
            figure = await pass_through(local, count, concurrency)
            print(
                f"local, {concurrency} at a time    {figure.rate:>9,.0f} msg/s  "
                f"{figure.cpu_us:5.1f} µs CPU  {figure.rate / raw:.2f} × raw ({raw:,.0f}/s)"
            )


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000))

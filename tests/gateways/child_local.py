"""Programs that the local gateway's tests start and kill: `python child_local.py MODE FOLDER`.

Each line on standard output is an event the test waits for; the program ends when its standard
input does.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable

from gateways.local import LocalGateway
from pump import event_loop
from pump.errors import StorageFailed
from pump.message import Message
from pump.outcome import ACK, Settlement
from pump.subscription import MakeChannels, Subscription

ORDERS = Subscription(queue="orders", request=dict)
POISON = Subscription(queue="orders", request=dict, max_receive_count=2, dead_letter_queue="dead")


def say(*words: object) -> None:
    print(*words, flush=True)


async def until_told() -> None:
    await asyncio.to_thread(sys.stdin.read)


async def open_orders(folder: str, subscription: Subscription = ORDERS) -> LocalGateway:
    gateway = LocalGateway(folder)
    await gateway.open()
    for spec in subscription.queue_specs():
        await gateway.admin().ensure(spec, MakeChannels.CREATE)
    return gateway


async def host(folder: str) -> None:
    """Host the engine."""
    gateway = await open_orders(folder)
    say("host" if gateway.is_host else "client")
    await until_told()
    await gateway.aclose()


async def send(folder: str) -> None:
    """Send without end; say the id of each message whose send returned."""
    producer = (await open_orders(folder)).producer("orders")

    async def send_on() -> None:
        while True:
            for sent in await producer.send([Message(body=b"x" * 200) for _ in range(7)]):
                say(sent)

    await asyncio.gather(*(send_on() for _ in range(4)))


async def work(folder: str) -> None:
    """Receive and ack without end; say the id of each message whose ack was confirmed."""
    consumer = (await open_orders(folder)).consumer(ORDERS)
    say("ready")
    while True:
        deliveries = await consumer.receive(max_count=5, wait_s=20)
        refused = await consumer.settle([Settlement(each, ACK) for each in deliveries])
        assert not refused
        for each in deliveries:
            say(each.message.id)


async def both(folder: str) -> None:
    """Send and work without end; say what was accepted, is to be acked, and was confirmed."""
    gateway = await open_orders(folder)
    producer, consumer = gateway.producer("orders"), gateway.consumer(ORDERS)

    async def send_on() -> None:
        while True:
            for sent in await producer.send([Message(body=b"x") for _ in range(3)]):
                say("sent", sent)

    async def work_on() -> None:
        while True:
            deliveries = await consumer.receive(max_count=4, wait_s=20)
            for each in deliveries:
                say("acking", each.message.id)
            refused = await consumer.settle([Settlement(each, ACK) for each in deliveries])
            assert not refused, refused
            for each in deliveries:
                say("done", each.message.id)

    await asyncio.gather(send_on(), work_on(), work_on())


async def fork(folder: str) -> None:
    """Host the engine, and fork a child that outlives this process."""
    await open_orders(folder)
    forked = os.fork()
    if forked == 0:
        os.close(sys.stdout.fileno())
        signal.pause()
    say(forked)
    await until_told()


async def hold(folder: str) -> None:
    """Receive one message and hold it."""
    gateway = await open_orders(folder)
    [held] = await gateway.consumer(ORDERS).receive(max_count=1, wait_s=20)
    say(held.message.id)
    await until_told()


async def session(folder: str) -> None:
    """Accept the session `a`, receive one message of it, and hold both."""
    gateway = await open_orders(folder)
    accepted = await gateway.accept_session(ORDERS, "a", wait_s=20)
    assert accepted is not None
    [held] = await accepted.receive(max_count=1, wait_s=20)
    say(held.message.id)
    await until_told()


async def poisoned(folder: str) -> None:
    """Die of the first message."""
    gateway = await open_orders(folder, POISON)
    await gateway.consumer(POISON).receive(max_count=1, wait_s=20)
    os.kill(os.getpid(), signal.SIGKILL)


async def fill(folder: str) -> None:
    """Send until the disk refuses, then make room, and send once more."""
    gateway = await open_orders(folder)
    producer = gateway.producer("orders")
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
    try:
        while True:
            for sent in await producer.send([Message(body=b"x" * 1000) for _ in range(10)]):
                say(sent)
    except StorageFailed as error:
        say("refused", error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    for sent in await producer.send([Message(body=b"last")]):
        say(sent)
    say("end")
    await until_told()


MODES: dict[str, Callable[[str], Awaitable[None]]] = {
    mode.__name__: mode for mode in (host, send, work, both, fork, hold, session, poisoned, fill)
}


async def main() -> None:
    await MODES[sys.argv[1]](sys.argv[2])


if __name__ == "__main__":
    event_loop.run(main())

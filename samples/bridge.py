"""Bridge: what is sent on one gateway is handled on another, sealed and traced all the way.

The bridge has no key: it sends each message on as it is, and only then acks it. After a crash in
between it is sent again with the same id, which the target drops where it de-duplicates.

Run it:   python -m samples.bridge [amqp://localhost nats://localhost]
Expect:   bridged a PlaceOrder, still sealed: True
          the warehouse packs order 1
"""

import asyncio
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from pump import App, Command, Message, Subscription
from pump.crypto import Encryption, Key, KeyRing

QUEUE, DEAD = "bridge-orders", "bridge-orders-dead"


class PlaceOrder(Command):
    order_id: int


def bridge_between(here: App, there: App) -> None:
    async def forward(message: Message) -> None:
        once = message.deduplication_id or message.id
        await there.post(replace(message, deduplication_id=once), queue=QUEUE)
        print(f"bridged a {message.type}, still sealed: {message.body.startswith(b'QRE1')}")

    here.register(Message, forward)
    here.subscribe(Subscription(queue=QUEUE, request=Message, dead_letter_queue=DEAD))


async def pack(request: PlaceOrder) -> None:
    print(f"the warehouse packs order {request.order_id}")


async def main(source: str, target: str, watch: Callable[[], Any] = lambda: None) -> None:
    keys = KeyRing(Key.generate("2026-11"))
    shop = App(source, encryption=Encryption(keys), telemetry=watch())
    here, there = App(source, telemetry=watch()), App(target, telemetry=watch())
    bridge_between(here, there)
    warehouse = App(target, encryption=Encryption(keys), telemetry=watch())
    warehouse.register(PlaceOrder, pack)
    warehouse.subscribe(Subscription(queue=QUEUE, request=PlaceOrder, dead_letter_queue=DEAD))
    async with shop, warehouse, warehouse.pumping() as packing, there, here:
        async with here.pumping() as bridging:
            await shop.post(PlaceOrder(1), queue=QUEUE)
            await bridging.wait_until_empty()
        await packing.wait_until_empty()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        source, target = sys.argv[1:] or (f"local://{folder}/here", f"local://{folder}/there")
        asyncio.run(main(source, target))

"""Where the broker is, and who receives there."""

from __future__ import annotations

from gateways.rabbitmq import RabbitMQGateway, RabbitMQSettings
from pump.clock import SYSTEM_CLOCK


def via(url: str, port: int) -> str:
    """The same broker by another port."""
    return url.replace(f":{RabbitMQSettings.from_url(url).port}/", f":{port}/")


async def until_consumed(gateway: RabbitMQGateway, queue: str) -> None:
    """Return when somebody is subscribed to the queue."""
    for _ in range(500):
        channel = await gateway._link.channel()
        found = await channel.queue_declare(queue, passive=True)
        await channel.close()
        if found.consumer_count:
            return
        await SYSTEM_CLOCK.sleep(0.01)
    raise AssertionError("nobody receives")

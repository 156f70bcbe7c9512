"""The NATS gateway: queues as JetStream work-queue streams."""

from .gateway import NatsGateway, from_url
from .settings import NatsSettings

__all__ = ["NatsGateway", "NatsSettings", "from_url"]

"""The RabbitMQ gateway: quorum queues over AMQP 0-9-1, through aiormq (aio-pika)."""

from .gateway import RabbitMQGateway, from_url
from .settings import RabbitMQSettings

__all__ = ["RabbitMQGateway", "RabbitMQSettings", "from_url"]

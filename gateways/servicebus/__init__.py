"""The Azure Service Bus gateway: queues over AMQP 1.0, through azure-servicebus."""

from .gateway import ServiceBusGateway, from_url
from .settings import ServiceBusSettings

__all__ = ["ServiceBusGateway", "ServiceBusSettings", "from_url"]

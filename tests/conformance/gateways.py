"""One gateway of each kind, made and never opened: what it can do, it says without a server."""

from __future__ import annotations

from gateways.local import LocalGateway
from gateways.memory import MemoryGateway
from gateways.nats import NatsGateway, NatsSettings
from gateways.postgres import PostgresGateway, PostgresSettings
from gateways.rabbitmq import RabbitMQGateway, RabbitMQSettings
from gateways.s3 import Layout, S3Gateway, S3Settings, Storage
from gateways.s3.store.objects import ServerTime
from gateways.servicebus import ServiceBusGateway, ServiceBusSettings
from gateways.sqs import SqsGateway
from pump.clock import SYSTEM_CLOCK
from pump.ports import Gateway
from tests.gateways.s3.model_store import ModelS3, ModelStore


def _s3(layout: Layout) -> S3Gateway:
    """On a model: which layout a queue has is for its bucket to say."""
    time = ServerTime(SYSTEM_CLOCK.now_s)
    store = ModelStore(ModelS3(SYSTEM_CLOCK.time_s), time, SYSTEM_CLOCK.now_s)
    settings = S3Settings(bucket="unused", layout=layout)
    return S3Gateway(settings, storage=Storage(store=store, time=time))


EVERY_GATEWAY: dict[str, Gateway] = {
    "memory": MemoryGateway(),
    "local": LocalGateway("unused"),
    "SQS": SqsGateway(),
    "S3, leases": _s3(Layout.LEASES),
    "S3, log": _s3(Layout.LOG),
    "RabbitMQ": RabbitMQGateway(RabbitMQSettings()),
    "NATS": NatsGateway(NatsSettings()),
    "Postgres": PostgresGateway(PostgresSettings()),
    "Service Bus": ServiceBusGateway(ServiceBusSettings(namespace="unused.servicebus.windows.net")),
}

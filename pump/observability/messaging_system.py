"""Messaging system: what OpenTelemetry's conventions call the broker behind a gateway."""

from __future__ import annotations

_SYSTEMS = {
    "sqs": "aws_sqs",
    "amqp": "rabbitmq",
    "sb": "servicebus",
    # The conventions know no name for these. Ours say that they are nobody else's.
    "nats": "nats",
    "memory": "pumphouse_memory",
    "local": "pumphouse_local",
    "s3": "pumphouse_s3",
}


def messaging_system(gateway: str) -> str:
    """The value of `messaging.system` for a gateway's scheme; a stranger's scheme names itself."""
    return _SYSTEMS.get(gateway, gateway)

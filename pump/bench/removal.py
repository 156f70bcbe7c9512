"""Removal: how a person gets rid of a throw-away queue that a gateway cannot remove. Pure."""

from __future__ import annotations

_HINTS = {
    "sqs": "aws sqs delete-queue --queue-url "
    '"$(aws sqs get-queue-url --queue-name {queue} --query QueueUrl --output text)"',
    "s3": "aws s3 rm --recursive {where}/queues/{queue}/",
    "amqp": "rabbitmqctl delete_queue {queue}",
    "nats": "nats stream rm {queue}",
    "sb": "az servicebus queue delete --name {queue} --namespace-name … --resource-group …",
}
_ANY = "your broker's own tools"


def removal_hint(gateway: str, queue: str, where: str) -> str:
    """What removes a queue on a gateway of this scheme and URL: a command, or whose tools."""
    # A gateway that is an object does not say in which bucket it is.
    place = where.rstrip("/") if where.partition("://")[2] else f"{gateway}://…"
    return _HINTS.get(gateway, _ANY).format(queue=queue, where=place)

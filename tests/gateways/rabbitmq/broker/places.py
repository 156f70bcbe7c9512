"""Where the broker is."""

from __future__ import annotations

from gateways.rabbitmq import RabbitMQSettings


def via(url: str, port: int) -> str:
    """The same broker by another port."""
    return url.replace(f":{RabbitMQSettings.from_url(url).port}/", f":{port}/")

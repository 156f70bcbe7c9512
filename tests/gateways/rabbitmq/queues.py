"""Queues of a test, removed when it is over."""

from __future__ import annotations

import aiormq

from gateways.rabbitmq import RabbitMQGateway, RabbitMQSettings
from gateways.rabbitmq.names import session_attempts


async def delete_queues(url: str, *words: str) -> None:
    """Remove every queue, of those that gateways have made, whose name has one of these words."""
    gateway = RabbitMQGateway(RabbitMQSettings.from_url(url))
    await gateway.open()
    topology = gateway._topology
    entries = {
        entry
        for entry in await topology.registry.entries()
        if any(word in entry.queue or word in entry.of for word in words)
    }
    names = {entry.queue for entry in entries}
    for entry in entries:
        if await topology.has_sessions(entry.queue):
            sessions = await topology.sessions_of(entry.queue).entries()
            names |= {session.queue for session in sessions}
            names |= {session_attempts(entry.queue, session.of) for session in sessions}
    connection = await aiormq.connect(url)
    channel = await connection.channel()
    for name in names:
        await channel.queue_delete(name)
    await connection.close()
    await topology.registry.remove(entries)
    await gateway.aclose()

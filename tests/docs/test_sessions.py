"""The page on sessions says of each gateway what it says of itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from pump.ports import SessionGateway
from tests.conformance.gateways import EVERY_GATEWAY

from .markdown import rows_between

PAGE = Path(__file__).resolve().parents[2] / "docs" / "sessions.md"


ROWS = {
    "memory": "memory",
    "local": "local",
    "SQS": "SQS, queues named `….fifo`",
    "S3, leases": "S3, queues in the layout `leases`",
    "S3, log": "S3, queues in the layout `log`",
    "RabbitMQ": "RabbitMQ, queues with `sessions`",
    "NATS": "NATS, queues with `sessions`",
    "Postgres": "Postgres",
    "Service Bus": "Service Bus, queues with `sessions`",
}


@pytest.mark.parametrize("name", EVERY_GATEWAY)
def test_the_table_says_what_the_gateway_can_do(name: str) -> None:
    gateway = EVERY_GATEWAY[name]
    rows = {row[0]: row[1:3] for row in rows_between(PAGE, "sessions")}
    capabilities = gateway.capabilities

    said = [
        "yes" if fact else "no"
        for fact in (capabilities.has_sessions, capabilities.has_session_choice)
    ]

    assert rows[ROWS[name]] == said
    assert isinstance(gateway, SessionGateway)

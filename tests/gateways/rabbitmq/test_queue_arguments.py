"""What a queue is declared with."""

from __future__ import annotations

from typing import Any

import pytest

from gateways.rabbitmq.topology import (
    DELIVERY_LIMIT,
    arguments_of,
    delay_arguments,
    has_sessions,
)
from pump.capabilities import OrderingMode
from pump.errors import ConfigurationError, UnsupportedOperation
from pump.subscription import QueueSpec

LIMITED = QueueSpec(name="orders", max_receive_count=3, dead_letter_queue="dead")


def test_when_nothing_is_asked_for_then_it_is_a_quorum_queue() -> None:
    assert arguments_of(QueueSpec(name="orders"), server="3.10.8") == {"x-queue-type": "quorum"}


def test_when_the_server_drops_after_twenty_deliveries_then_it_is_told_not_to() -> None:
    """RabbitMQ 4."""
    assert arguments_of(QueueSpec(name="orders"), server="4.1.0")["x-delivery-limit"] == -1


@pytest.mark.parametrize("server", ["3.10.8", "4.1.0"])
def test_when_a_message_gets_three_deliveries_then_the_broker_moves_it_and_loses_nothing(
    server: str,
) -> None:
    """R20, T5: two returns are allowed, and at-least-once needs reject-publish."""
    assert arguments_of(LIMITED, server=server) == {
        "x-queue-type": "quorum",
        "x-delivery-limit": 2,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }


def test_when_a_queue_has_sessions_then_the_broker_has_no_limit() -> None:
    """T5: what waits to be sorted is not tried, and a session's holder counts."""
    spec = QueueSpec(
        name="orders", max_receive_count=3, dead_letter_queue="dead", options={"sessions": True}
    )

    assert arguments_of(spec, server="3.10.8") == {"x-queue-type": "quorum"}
    assert arguments_of(spec, server="4.1.0")[DELIVERY_LIMIT] == -1


def test_when_a_message_is_delayed_then_its_queue_outlives_it_and_leads_back() -> None:
    arguments = delay_arguments("orders", 2048, server="3.10.8")

    assert arguments["x-message-ttl"] == 2048
    assert arguments["x-expires"] > 24 * 3600 * 1000
    assert arguments["x-dead-letter-routing-key"] == "orders"
    assert arguments["x-dead-letter-strategy"] == "at-least-once"
    assert DELIVERY_LIMIT not in arguments
    # RabbitMQ 4 would end the delay of what was looked at twenty times.
    assert delay_arguments("orders", 2048, server="4.1.0")[DELIVERY_LIMIT] == -1


def test_when_arguments_of_ones_own_are_given_then_the_queue_has_them() -> None:
    spec = QueueSpec(name="orders", options={"arguments": {"x-max-length": 5}})

    assert arguments_of(spec, server="3.10.8")["x-max-length"] == 5


@pytest.mark.parametrize(
    "options", [{"fifo": True}, {"arguments": 5}, {"sessions": "yes"}, {"sessions": 1}]
)
def test_when_an_option_cannot_work_then_the_error_names_it(options: dict[str, Any]) -> None:
    """R56."""
    with pytest.raises(ConfigurationError) as caught:
        arguments_of(QueueSpec(name="orders", options=options), server="")

    assert caught.value.field == "Subscription.options"


@pytest.mark.parametrize("fields", [{"ordering": OrderingMode.LIFO}, {"ordering_guarantee": True}])
def test_when_rabbitmq_cannot_keep_such_an_order_then_it_says_what_to_do(
    fields: dict[str, Any],
) -> None:
    """T7, R76."""
    with pytest.raises(UnsupportedOperation):
        arguments_of(QueueSpec(name="orders", **fields), server="")


def test_when_sessions_are_not_mentioned_then_there_are_none() -> None:
    assert not has_sessions(QueueSpec(name="orders"))

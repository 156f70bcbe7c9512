"""What a queue is made with, and where one that exists differs (R22, R56)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from gateways.servicebus.queue_settings import ServiceBusQueueSettings, check_subscription
from pump.capabilities import OrderingMode
from pump.errors import ConfigurationError, UnsupportedOperation
from pump.subscription import QueueSpec
from pump.testing.builders import a_subscription


def made(**fields: Any) -> dict[str, Any]:
    return ServiceBusQueueSettings.from_spec(QueueSpec(name="orders", **fields)).description


@pytest.mark.parametrize(
    ("lease_s", "lock_s"), [(0.5, 5), (5, 5), (30, 30), (300, 300), (3_600, 300)]
)
def test_when_a_lease_is_asked_for_then_the_lock_is_as_near_as_the_service_allows(
    lease_s: float, lock_s: float
) -> None:
    assert made(lease=timedelta(seconds=lease_s))["lock_duration"] == timedelta(seconds=lock_s)


def test_when_the_service_is_to_count_then_its_dead_letters_go_where_they_should() -> None:
    """R20."""
    description = made(max_receive_count=3, dead_letter_queue="dead")

    assert description["max_delivery_count"] == 3
    assert description["forward_dead_lettered_messages_to"] == "dead"


def test_when_the_pump_counts_then_the_service_does_not_cut_it_short() -> None:
    """R17: its default is ten, and it cannot be without a limit."""
    assert made()["max_delivery_count"] == 2_000


def test_when_messages_expire_then_they_are_dead_letters_and_not_lost() -> None:
    assert made()["dead_lettering_on_message_expiration"] is True


@pytest.mark.parametrize("window", [20, 60.0, timedelta(days=7)])
def test_when_a_window_is_given_then_duplicates_are_looked_for(window: Any) -> None:
    """R39."""
    assert made(options={"deduplication_window": window})["requires_duplicate_detection"] is True


@pytest.mark.parametrize(
    "fields",
    [
        {"options": {"colour": "blue"}},
        {"options": {"sessions": "yes"}},
        {"options": {"partitioned": 1}},
        {"options": {"deduplication_window": 19}},
        {"options": {"deduplication_window": timedelta(days=8)}},
        {"options": {"deduplication_window": "1h"}},
        {"options": {"max_size_in_megabytes": 0}},
        {"max_receive_count": 2_001},
    ],
)
def test_when_a_setting_is_not_to_be_had_then_it_is_named(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        made(**fields)


@pytest.mark.parametrize("fields", [{"ordering": OrderingMode.LIFO}, {"ordering_guarantee": True}])
def test_when_an_order_is_not_to_be_had_then_the_reason_is_given(fields: dict[str, Any]) -> None:
    """R76, T7."""
    with pytest.raises(UnsupportedOperation, match="gateway does not support"):
        made(**fields)


@pytest.mark.parametrize("field", ["dead_letter_queue", "invalid_queue"])
def test_when_rejects_are_to_go_where_nothing_can_be_sent_then_it_is_an_error(field: str) -> None:
    """R22: found when the subscription is opened, not when the first message is lost."""
    fields: dict[str, Any] = {field: "orders/$DeadLetterQueue"}
    with pytest.raises(UnsupportedOperation):
        check_subscription(a_subscription("orders", **fields))


FOUND = {
    "requires_session": False,
    "requires_duplicate_detection": False,
    "duplicate_detection_history_time_window": timedelta(minutes=10),
    "max_delivery_count": 3,
    "forward_dead_lettered_messages_to": "https://shop.servicebus.windows.net/dead",
}


def test_when_a_queue_fits_then_nothing_is_said() -> None:
    settings = ServiceBusQueueSettings.from_spec(
        QueueSpec(name="orders", max_receive_count=3, dead_letter_queue="dead")
    )

    assert settings.differences(FOUND) == []


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"requires_session": True}, "sessions"),
        ({"requires_duplicate_detection": True}, "deduplication_window"),
        ({"max_delivery_count": 10}, "max_delivery_count"),
        ({"forward_dead_lettered_messages_to": None}, "dead letters"),
    ],
)
def test_when_a_queue_differs_then_every_difference_is_said(
    changed: dict[str, Any], word: str
) -> None:
    settings = ServiceBusQueueSettings.from_spec(
        QueueSpec(name="orders", max_receive_count=3, dead_letter_queue="dead")
    )

    [difference] = settings.differences({**FOUND, **changed})

    assert word in difference


def test_when_nothing_was_asked_for_then_any_queue_fits() -> None:
    settings = ServiceBusQueueSettings.from_spec(QueueSpec(name="orders"))

    assert settings.differences({**FOUND, "requires_session": True}) == []

"""What a queue's spec means at NATS, and where an existing queue differs (R22, R36, R56)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from gateways.nats.queue_settings import NatsQueueSettings, facts_of, time_s
from pump.capabilities import OrderingMode
from pump.errors import ConfigurationError, UnsupportedOperation
from pump.subscription import QueueSpec

SECOND = 1_000_000_000


def settings(**fields: Any) -> NatsQueueSettings:
    return NatsQueueSettings.from_spec(QueueSpec(name="orders", **fields))


def as_made(given: NatsQueueSettings) -> tuple[dict[str, Any], dict[str, Any]]:
    return given.stream(replicas=1, can_schedule=True), given.consumer()


def test_when_a_queue_is_made_then_an_acked_message_leaves_its_stream() -> None:
    stream = settings().stream(replicas=3, can_schedule=True)

    assert (stream["name"], stream["retention"], stream["storage"]) == (
        "orders",
        "workqueue",
        "file",
    )
    assert stream["subjects"] == ["orders", "orders.g.*", "orders.s.*"]
    assert (stream["num_replicas"], stream["allow_msg_schedules"]) == (3, True)
    assert stream["metadata"] == {"pumphouse.queue": "orders"}


def test_when_the_server_is_older_then_the_stream_keeps_no_schedules() -> None:
    assert "allow_msg_schedules" not in settings().stream(replicas=1, can_schedule=False)


def test_when_a_lease_is_given_then_the_server_waits_a_little_longer() -> None:
    consumer = settings(lease=timedelta(seconds=10)).consumer()

    assert consumer["ack_wait"] == 10.25 * SECOND
    assert (consumer["max_ack_pending"], consumer["max_deliver"]) == (-1, -1)


def test_when_order_is_strict_then_one_message_is_in_flight_at_a_time() -> None:
    assert settings(ordering_guarantee=True).consumer()["max_ack_pending"] == 1


def test_when_a_queue_has_sessions_then_groups_are_not_the_shared_consumers() -> None:
    given = settings(options={"sessions": True, "subjects": ["shop.>"], "replicas": 3})

    assert given.consumer()["filter_subjects"] == ["orders", "shop.>"]
    assert given.stream(replicas=1, can_schedule=True)["num_replicas"] == 3
    assert settings().consumer()["filter_subjects"] == ["orders", "orders.g.*"]


@pytest.mark.parametrize(
    "fields",
    [
        {"options": {"unknown": 1}},
        {"options": {"sessions": "yes"}},
        {"options": {"replicas": 9}},
        {"options": {"replicas": True}},
        {"options": {"subjects": "shop.>"}},
        {"options": {"subjects": [""]}},
        {"options": {"deduplication_window": 0}},
        {"options": {"deduplication_window": "1s"}},
        {"options": {"deduplication_window": True}},
        {"max_receive_count": 3},
        {"max_receive_count": 3, "dead_letter_queue": "orders"},
        {"max_receive_count": 0, "dead_letter_queue": "dead"},
    ],
)
def test_when_a_spec_is_wrong_then_it_is_refused(fields: dict[str, Any]) -> None:
    """R56, R22."""
    with pytest.raises(ConfigurationError):
        settings(**fields)


def test_when_a_queue_has_no_name_then_it_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        NatsQueueSettings.from_spec(QueueSpec(name=" "))


def test_when_the_newest_is_to_come_first_then_it_is_unsupported() -> None:
    """R36, T7."""
    with pytest.raises(UnsupportedOperation):
        settings(ordering=OrderingMode.LIFO)


def test_when_a_queue_is_as_asked_for_then_nothing_differs() -> None:
    given = settings(
        max_receive_count=3,
        dead_letter_queue="dead",
        options={"deduplication_window": timedelta(seconds=9), "sessions": True},
    )

    assert given.differences(*as_made(given)) == []
    # Whoever only needs it to exist does not mind how it is.
    assert settings().differences(*as_made(given)) == []


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"ordering_guarantee": True}, "in flight"),
        ({"max_receive_count": 4, "dead_letter_queue": "dead"}, "max_receive_count is None"),
        ({"options": {"sessions": True}}, "sessions is None"),
        ({"options": {"subjects": ["shop.>"]}}, "no subjects shop.>"),
        ({"options": {"deduplication_window": 9}}, "deduplication_window is 300 s"),
    ],
)
def test_when_a_queue_is_other_than_asked_for_then_it_is_said_in_words(
    fields: dict[str, Any], said: str
) -> None:
    differences = settings(**fields).differences(*as_made(settings()))

    assert said in "; ".join(differences)


def test_when_a_stream_keeps_what_was_acked_then_it_is_said_in_words() -> None:
    stream, consumer = as_made(settings())
    stream["retention"] = "limits"

    assert "limits" in settings().differences(stream, consumer)[0]


def test_when_nobody_receives_yet_then_the_order_does_not_differ() -> None:
    stream, _ = as_made(settings())

    assert settings(ordering_guarantee=True).differences(stream, None) == []


def test_when_a_queue_is_looked_at_then_its_facts_are_what_was_asked_for() -> None:
    given = settings(
        max_receive_count=3,
        dead_letter_queue="dead",
        ordering_guarantee=True,
        lease=timedelta(seconds=10),
    )
    stream, consumer = as_made(given)

    facts = facts_of({"config": stream}, {"config": consumer})

    assert (facts.lease_s, facts.is_strict, facts.is_bounded) == (10.0, True, True)
    assert (facts.max_receive_count, facts.dead_letter_queue) == (3, "dead")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2023-11-14T22:13:20.123456789Z", 1_700_000_000.123456789),
        ("2023-11-14T22:13:20Z", 1_700_000_000.0),
        ("0001-01-01T00:00:00Z", None),
        ("soon", None),
        (None, None),
    ],
)
def test_when_the_server_says_a_time_then_it_is_read(text: str | None, expected: float) -> None:
    assert time_s(text) == expected

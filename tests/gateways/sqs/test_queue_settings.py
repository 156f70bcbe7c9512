"""Queue settings: specs in SQS's words, and the differences to a queue that exists."""

from __future__ import annotations

import json
import pickle
from datetime import timedelta
from typing import Any

import attrs
import pytest

from gateways.sqs.queue_settings import QueueOptions, QueueSettings
from gateways.sqs.topics import permitting
from pump.capabilities import OrderingMode
from pump.errors import ConfigurationError, UnsupportedOperation
from pump.subscription import QueueSpec
from pump.testing.builders import a_subscription

DEAD_ARN = "arn:aws:sqs:eu-west-1:123456789012:dead"


def a_queue(name: str = "orders", **options: Any) -> QueueSettings:
    return QueueSettings.from_spec(QueueSpec(name=name, options=options))


def a_redriving_queue(max_receive_count: int = 3) -> QueueSettings:
    return QueueSettings.from_spec(
        QueueSpec(name="orders", max_receive_count=max_receive_count, dead_letter_queue="dead")
    )


def created(settings: QueueSettings) -> dict[str, str]:
    return settings.creation(dead_letter_arn=None)


def compared(settings: QueueSettings, actual: dict[str, str], **tags: str) -> list[str]:
    arn = DEAD_ARN if settings.dead_letter else None
    return settings.differences(actual, dead_letter_arn=arn, tags=tags)


@pytest.mark.parametrize(
    ("options", "attributes"),
    [
        ({}, {}),
        ({"retention": timedelta(days=2)}, {"MessageRetentionPeriod": "172800"}),
        ({"delay": timedelta(minutes=15)}, {"DelaySeconds": "900"}),
        ({"delay": timedelta(seconds=1.2)}, {"DelaySeconds": "2"}),
        ({"max_message_bytes": 2048}, {"MaximumMessageSize": "2048"}),
        ({"kms_key_id": "alias/orders"}, {"KmsMasterKeyId": "alias/orders"}),
        ({"sse": True}, {"SqsManagedSseEnabled": "true"}),
        ({"sse": False}, {"SqsManagedSseEnabled": "false"}),
        (
            {"attributes": {"KmsDataKeyReusePeriodSeconds": "60"}},
            {"KmsDataKeyReusePeriodSeconds": "60"},
        ),
        ({"unwrap_sns": False}, {}),
        ({"tags": {"team": "north"}}, {}),
    ],
)
def test_when_an_option_is_given_then_the_queue_is_made_with_it(
    options: dict[str, Any], attributes: dict[str, str]
) -> None:
    settings = QueueSettings.from_spec(
        QueueSpec(name="orders", lease=timedelta(seconds=10), options=options)
    )

    assert created(settings) == {"VisibilityTimeout": "10", **attributes}


@pytest.mark.parametrize(
    ("options", "attributes"),
    [
        ({"content_based_deduplication": True}, {"ContentBasedDeduplication": "true"}),
        (
            {"fifo_throughput": "group"},
            {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"},
        ),
        (
            {"fifo_throughput": "queue"},
            {"DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue"},
        ),
    ],
)
def test_when_a_fifo_option_is_given_then_the_name_decides_whether_it_can_be_had(
    options: dict[str, Any], attributes: dict[str, str]
) -> None:
    """R38, R39, R56."""
    assert created(a_queue("orders.fifo", **options)) == {"FifoQueue": "true", **attributes}
    with pytest.raises(ConfigurationError, match=r"orders\.fifo"):
        a_queue("orders", **options)


@pytest.mark.parametrize(
    "options",
    [
        {"fifo_throughput": "fast"},
        {"content_based_deduplication": "yes"},
        {"retention": timedelta(seconds=59)},
        {"retention": timedelta(days=14, seconds=1)},
        {"retention": 3600},
        {"delay": timedelta(minutes=15, seconds=1)},
        {"delay": timedelta(seconds=-1)},
        {"max_message_bytes": 1023},
        {"max_message_bytes": 1_048_577},
        {"max_message_bytes": True},
        {"kms_key_id": ""},
        {"sse": 1},
        {"sse": True, "kms_key_id": "alias/orders"},
        {"tags": {"team": 1}},
        {"attributes": {"DelaySeconds": "1"}},
        {"attributes": {"FifoQueue": "true"}},
        {"attributes": {"RedrivePolicy": "{}"}},
        {"attributes": ["Policy"]},
        {"topic": ""},
        {"topic": "no topic"},
        {"topic": "arn:aws:sqs:eu-west-1:123456789012:orders"},
        {"filter_policy": {"type": ["PlaceOrder"]}},
        {"raw_delivery": True},
        {"topic": "events", "filter_policy": ["PlaceOrder"]},
        {"topic": "events", "filter_policy": {"type": {object()}}},
        {"unwrap_sns": "no"},
    ],
)
def test_when_an_option_cannot_work_then_the_error_names_it_and_the_remedy(
    options: dict[str, Any],
) -> None:
    """R56."""
    with pytest.raises(ConfigurationError) as caught:
        a_queue("orders.fifo" if "fifo" in str(options) else "orders", **options)

    assert any(repr(key) in caught.value.field for key in options)
    assert caught.value.remedy


def test_when_an_option_is_unknown_then_the_error_lists_the_known_ones() -> None:
    """R56."""
    with pytest.raises(ConfigurationError) as caught:
        a_queue(retension=timedelta(days=1))

    assert caught.value.value == ["retension"]
    for field in attrs.fields(QueueOptions):
        assert field.name in caught.value.remedy


def test_when_only_existence_is_asked_for_then_dead_letters_wait_as_long_as_sqs_can() -> None:
    """R22: a rejection target."""
    dead, dead_fifo = a_queue("dead"), a_queue("dead.fifo")

    assert created(dead) == {"MessageRetentionPeriod": "1209600"}
    assert created(dead_fifo) == {"FifoQueue": "true", "MessageRetentionPeriod": "1209600"}
    assert not dead.has_demands


def test_when_a_rejection_target_exists_then_its_retention_is_its_own() -> None:
    assert compared(a_queue("dead"), {"MessageRetentionPeriod": "60"}) == []


@pytest.mark.parametrize(
    ("lease", "visibility"),
    [
        (timedelta(seconds=30), "30"),
        (timedelta(milliseconds=1), "1"),
        (timedelta(seconds=1.5), "2"),
        (timedelta(hours=12), "43200"),
    ],
)
def test_when_leased_then_the_visibility_timeout_is_never_shorter(
    lease: timedelta, visibility: str
) -> None:
    settings = QueueSettings.from_spec(QueueSpec(name="orders", lease=lease))

    assert created(settings) == {"VisibilityTimeout": visibility}


def test_when_leased_for_longer_than_sqs_can_then_that_is_an_error() -> None:
    """R56."""
    spec = QueueSpec(name="orders", lease=timedelta(hours=12, seconds=1))

    with pytest.raises(ConfigurationError, match="12 hours"):
        QueueSettings.from_spec(spec)


def test_when_newest_first_is_asked_for_then_sqs_has_no_such_queue() -> None:
    """R36, R76, T7."""
    with pytest.raises(UnsupportedOperation, match="lifo"):
        QueueSettings.from_spec(QueueSpec(name="orders", ordering=OrderingMode.LIFO))


def test_when_strict_order_is_asked_of_a_standard_queue_then_the_error_names_the_fifo_one() -> None:
    """R37, T7."""
    with pytest.raises(ConfigurationError, match=r"orders\.fifo"):
        QueueSettings.from_spec(QueueSpec(name="orders", ordering_guarantee=True))

    strict = QueueSettings.from_spec(QueueSpec(name="orders.fifo", ordering_guarantee=True))
    assert created(strict) == {"FifoQueue": "true"}


def test_when_redrive_is_asked_for_then_the_policy_names_the_target_and_the_count() -> None:
    """R20."""
    made = a_redriving_queue().creation(dead_letter_arn=DEAD_ARN)

    assert json.loads(made["RedrivePolicy"]) == {
        "deadLetterTargetArn": DEAD_ARN,
        "maxReceiveCount": 3,
    }


@pytest.mark.parametrize(
    ("queue", "target"),
    [("orders", "dead.fifo"), ("orders.fifo", "dead"), ("orders", "orders"), ("orders", None)],
)
def test_when_the_redrive_target_does_not_fit_then_that_is_an_error(
    queue: str, target: str | None
) -> None:
    """R22."""
    with pytest.raises(ConfigurationError) as caught:
        QueueSettings.from_spec(
            QueueSpec(name=queue, max_receive_count=3, dead_letter_queue=target)
        )

    assert caught.value.field == "QueueSpec.dead_letter_queue"


@pytest.mark.parametrize("count", [0, 1001])
def test_when_the_receive_count_is_out_of_range_then_that_is_an_error(count: int) -> None:
    """R22."""
    with pytest.raises(ConfigurationError) as caught:
        a_redriving_queue(count)

    assert caught.value.field == "QueueSpec.max_receive_count"


def test_when_a_subscription_names_its_queues_then_they_all_have_settings() -> None:
    """R22, R29."""
    subscription = a_subscription(
        "orders", dead_letter_queue="dead", invalid_queue="invalid", max_receive_count=5
    )

    settings = [QueueSettings.from_spec(spec) for spec in subscription.queue_specs()]

    assert [each.address.name for each in settings] == ["dead", "invalid", "orders"]
    assert settings[-1].dead_letter == settings[0].address


def test_when_a_standard_topic_is_to_feed_a_fifo_queue_then_that_is_an_error() -> None:
    """R56."""
    with pytest.raises(ConfigurationError, match="FIFO topic"):
        a_queue("orders.fifo", topic="events")

    assert a_queue("orders.fifo", topic="events.fifo").topic is not None
    assert a_queue("orders", topic="events.fifo").topic is not None


def test_when_a_topic_is_named_then_messages_are_delivered_raw_unless_asked_otherwise() -> None:
    raw = a_queue(topic="events").topic
    wrapped = a_queue(topic="events", raw_delivery=False).topic

    assert raw is not None
    assert wrapped is not None
    assert (raw.is_raw, wrapped.is_raw) == (True, False)


def test_when_a_queue_differs_then_every_difference_is_said() -> None:
    """R56."""
    settings = a_queue(
        "orders.fifo",
        retention=timedelta(days=1),
        content_based_deduplication=True,
        kms_key_id="alias/orders",
        tags={"team": "north", "cost": "1"},
    )

    differences = compared(settings, {"MessageRetentionPeriod": "345600"}, team="south")

    assert differences == [
        "ContentBasedDeduplication is false, asked for true",
        "MessageRetentionPeriod is 345600, asked for 86400",
        "KmsMasterKeyId is not set, asked for alias/orders",
        "tag 'team' is 'south', asked for 'north'",
        "tag 'cost' is not set, asked for '1'",
    ]


def test_when_a_queue_has_what_was_asked_for_and_more_then_it_fits() -> None:
    """R56."""
    settings = a_queue(
        "orders.fifo",
        retention=timedelta(days=1),
        fifo_throughput="queue",
        attributes={"RedriveAllowPolicy": '{"redrivePermission":"denyAll"}'},
        tags={"team": "north"},
    )
    actual = {
        "MessageRetentionPeriod": "86400",
        "VisibilityTimeout": "600",
        "MaximumMessageSize": "262144",
        "RedriveAllowPolicy": '{ "redrivePermission": "denyAll" }',
        "RedrivePolicy": json.dumps({"deadLetterTargetArn": DEAD_ARN, "maxReceiveCount": 9}),
    }

    assert compared(settings, actual, team="north", owner="else") == []


def test_when_only_the_lease_differs_then_the_queue_fits() -> None:
    """The consumer sends its own visibility timeout with each receive."""
    settings = QueueSettings.from_spec(QueueSpec(name="orders", lease=timedelta(seconds=5)))

    assert compared(settings, {"VisibilityTimeout": "30"}) == []


@pytest.mark.parametrize("count", [3, "3"])
def test_when_the_redrive_policy_is_the_one_asked_for_then_the_queue_fits(count: int | str) -> None:
    """R22."""
    policy = json.dumps({"maxReceiveCount": count, "deadLetterTargetArn": DEAD_ARN})

    assert compared(a_redriving_queue(), {"RedrivePolicy": policy}) == []


def test_when_the_redrive_policy_is_another_then_both_are_said() -> None:
    """R22."""
    policy = json.dumps({"maxReceiveCount": 4, "deadLetterTargetArn": f"{DEAD_ARN}-old"})

    assert compared(a_redriving_queue(), {"RedrivePolicy": policy}) == [
        f"it redrives after 4 to {DEAD_ARN}-old, asked for 3 to {DEAD_ARN}"
    ]
    assert compared(a_redriving_queue(), {}) == [
        f"it has no redrive policy, asked for 3 to {DEAD_ARN}"
    ]


def test_when_the_access_policy_has_grown_our_own_statement_then_the_queue_fits() -> None:
    policy = json.dumps({"Version": "2012-10-17", "Statement": {"Sid": "theirs"}})
    settings = a_queue(attributes={"Policy": policy}, topic="events")
    grown = permitting(policy, "arn:aws:sns:eu-west-1:123456789012:events", "arn:aws:sqs:…")
    assert grown is not None

    assert compared(settings, {"Policy": grown}) == []
    assert compared(settings, {"Policy": grown.replace("theirs", "others")}) != []


def test_when_pickled_then_they_are_what_they_were() -> None:
    """House style: configuration may cross a process."""
    settings = a_queue("orders.fifo", topic="events.fifo", filter_policy={"type": ["PlaceOrder"]})

    assert pickle.loads(pickle.dumps(settings)) == settings

"""Queue attributes: strings in, settings out, and back."""

import json

import pytest
from hypothesis import given, strategies as st

from gateways.sqs_server.errors import SqsError
from gateways.sqs_server.model import MAX_MESSAGE_BYTES, QueueCounts, QueueId, SqsQueueSettings
from gateways.sqs_server.operations import parse_attributes, render_attributes

_STANDARD = QueueId("000000000000", "us-east-1", "orders")
_FIFO = QueueId("000000000000", "us-east-1", "orders.fifo")
_COUNTS = QueueCounts(visible=1, in_flight=2, delayed=3)

_EVERY_QUEUE_SHOWS = {
    "QueueArn",
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
    "CreatedTimestamp",
    "LastModifiedTimestamp",
    "VisibilityTimeout",
    "MaximumMessageSize",
    "MessageRetentionPeriod",
    "DelaySeconds",
    "ReceiveMessageWaitTimeSeconds",
    "SqsManagedSseEnabled",
}
_FIFO_SHOWS = {
    "FifoQueue",
    "ContentBasedDeduplication",
    "DeduplicationScope",
    "FifoThroughputLimit",
}

_RANGES = {
    "VisibilityTimeout": (0, 43_200),
    "DelaySeconds": (0, 900),
    "MessageRetentionPeriod": (60, 1_209_600),
    "MaximumMessageSize": (1_024, MAX_MESSAGE_BYTES),
    "ReceiveMessageWaitTimeSeconds": (0, 20),
    "KmsDataKeyReusePeriodSeconds": (60, 86_400),
}


def _refusal(address: QueueId, raw: dict[str, str]) -> SqsError:
    with pytest.raises(SqsError) as refused:
        parse_attributes(address, raw)
    return refused.value


@pytest.mark.parametrize(
    ("address", "expected"),
    [(_STANDARD, _EVERY_QUEUE_SHOWS), (_FIFO, _EVERY_QUEUE_SHOWS | _FIFO_SHOWS)],
)
def test_when_all_is_asked_for_then_the_queue_shows_what_aws_shows(
    address: QueueId, expected: set[str]
) -> None:
    """R44."""
    assert set(render_attributes(SqsQueueSettings(address=address), ["All"], _COUNTS)) == expected


def test_when_names_are_asked_for_then_only_they_are_shown() -> None:
    """R44."""
    settings = SqsQueueSettings(address=_FIFO, created_at_s=7)

    shown = render_attributes(
        settings,
        ["CreatedTimestamp", "DeduplicationScope", "Policy", "ApproximateNumberOfMessagesDelayed"],
        _COUNTS,
    )

    assert shown == {
        "CreatedTimestamp": "7",
        "DeduplicationScope": "queue",
        "ApproximateNumberOfMessagesDelayed": "3",
    }


def test_when_an_unknown_name_is_asked_for_then_it_is_refused_by_name() -> None:
    """R44."""
    with pytest.raises(SqsError, match=r"InvalidAttributeName: Unknown Attribute Foobar\."):
        render_attributes(SqsQueueSettings(address=_STANDARD), ["QueueArn", "Foobar"], _COUNTS)


@pytest.mark.parametrize(("name", "bounds"), _RANGES.items())
def test_when_a_number_is_at_its_bounds_then_it_is_taken_and_beyond_them_refused(
    name: str, bounds: tuple[int, int]
) -> None:
    """R44."""
    low, high = bounds

    for value in (low, high):
        settings = parse_attributes(_STANDARD, {name: str(value), "KmsMasterKeyId": "key"})
        assert render_attributes(settings, [name], _COUNTS) == {name: str(value)}
    for text in (str(low - 1), str(high + 1), "1.5", "many", "", " 60"):
        refused = _refusal(_STANDARD, {name: text})
        assert refused.code == "InvalidAttributeValue"
        assert refused.message == f"Invalid value for the parameter {name}."


@given(
    st.fixed_dictionaries(
        {},
        optional={
            name: st.integers(low, high).map(str)
            for name, (low, high) in _RANGES.items()
            if name != "KmsDataKeyReusePeriodSeconds"
        }
        | {
            "ContentBasedDeduplication": st.sampled_from(["true", "false"]),
            "DeduplicationScope": st.sampled_from(["queue", "messageGroup"]),
            "SqsManagedSseEnabled": st.sampled_from(["true", "false"]),
        },
    )
)
def test_when_attributes_are_set_then_they_are_shown_as_they_were_set(raw: dict[str, str]) -> None:
    """R44."""
    settings = parse_attributes(_FIFO, raw)

    assert render_attributes(settings, list(raw), _COUNTS) == raw


@pytest.mark.parametrize(
    ("raw", "code", "message"),
    [
        ({"FifoQueue": "true"}, "InvalidAttributeName", "Unknown Attribute FifoQueue."),
        ({"FifoQueue": "false"}, "InvalidAttributeName", "Unknown Attribute FifoQueue."),
        (
            {"ContentBasedDeduplication": "false"},
            "InvalidAttributeName",
            "Unknown Attribute ContentBasedDeduplication.",
        ),
        (
            {"DeduplicationScope": "queue"},
            "InvalidAttributeName",
            "You can specify the DeduplicationScope only when FifoQueue is set to true.",
        ),
        (
            {"FifoThroughputLimit": "perQueue"},
            "InvalidAttributeName",
            "You can specify the FifoThroughputLimit only when FifoQueue is set to true.",
        ),
        ({"QueueArn": "x"}, "InvalidAttributeName", "Unknown Attribute QueueArn."),
        (
            {"Policy": "nonsense"},
            "InvalidAttributeValue",
            "Invalid value for the parameter Policy.",
        ),
        (
            {"KmsMasterKeyId": "key", "SqsManagedSseEnabled": "true"},
            "InvalidAttributeName",
            "You can use one type of server-side encryption (SSE) at one time. "
            "You can either enable KMS SSE or SQS SSE.",
        ),
    ],
)
def test_when_a_standard_queue_cannot_have_it_then_the_refusal_is_in_aws_words(
    raw: dict[str, str], code: str, message: str
) -> None:
    """R44."""
    refused = _refusal(_STANDARD, raw)

    assert (refused.code, refused.message) == (code, message)


def test_when_a_fifo_queue_is_to_become_standard_then_it_is_refused() -> None:
    """R44."""
    parse_attributes(_FIFO, {"FifoQueue": "True"})
    refused = _refusal(_FIFO, {"FifoQueue": "false"})

    assert refused.code == "InvalidAttributeValue"
    assert refused.message.endswith("FifoQueue. Reason: Modifying queue type is not supported.")


def test_when_high_throughput_is_set_then_deduplication_must_be_per_group() -> None:
    """R44."""
    high = {"FifoThroughputLimit": "perMessageGroupId"}

    assert _refusal(_FIFO, high).code == "InvalidAttributeValue"
    assert _refusal(_FIFO, {**high, "DeduplicationScope": "queue"}).code == "InvalidAttributeValue"
    assert parse_attributes(
        _FIFO, {**high, "DeduplicationScope": "messageGroup"}
    ).is_high_throughput


def test_when_an_attribute_is_set_to_nothing_then_it_is_taken_away() -> None:
    """R44."""
    target = QueueId("000000000000", "us-east-1", "dead")
    before = parse_attributes(
        _STANDARD,
        {
            "Policy": '{"Statement": {"Effect": "Deny"}}',
            "KmsMasterKeyId": "key",
            "RedrivePolicy": json.dumps(
                {"deadLetterTargetArn": target.arn, "maxReceiveCount": "3"}
            ),
        },
    )

    after = parse_attributes(
        _STANDARD,
        {"Policy": "", "KmsMasterKeyId": "", "RedrivePolicy": ""},
        before=before,
    )

    # A queue whose key is taken away is not encrypted by itself again, as on AWS.
    assert after == SqsQueueSettings(address=_STANDARD, has_managed_encryption=False)


def test_when_a_key_is_set_then_the_queue_leaves_sqs_s_own_encryption_and_shows_the_key() -> None:
    """R44."""
    names = ["KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "SqsManagedSseEnabled"]

    with_key = parse_attributes(_STANDARD, {"KmsMasterKeyId": "key"})
    without = parse_attributes(_STANDARD, {"SqsManagedSseEnabled": "true"}, before=with_key)

    assert render_attributes(with_key, names, _COUNTS) == {
        "KmsMasterKeyId": "key",
        "KmsDataKeyReusePeriodSeconds": "300",
        "SqsManagedSseEnabled": "false",
    }
    assert render_attributes(without, names, _COUNTS) == {"SqsManagedSseEnabled": "true"}


@pytest.mark.parametrize(
    "raw", [{"ContentBasedDeduplication": "yes"}, {"DeduplicationScope": "everywhere"}]
)
def test_when_a_choice_is_not_one_of_those_then_it_is_refused(raw: dict[str, str]) -> None:
    """R44."""
    assert _refusal(_FIFO, raw).code == "InvalidAttributeValue"

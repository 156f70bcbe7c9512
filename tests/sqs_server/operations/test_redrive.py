"""RedrivePolicy and RedriveAllowPolicy: what is taken, and what AWS says of the rest."""

import json

import pytest

from gateways.sqs_server.errors import SqsError
from gateways.sqs_server.model import QueueCounts, QueueId, pack, unpack
from gateways.sqs_server.operations import parse_attributes, render_attributes

_STANDARD = QueueId("000000000000", "us-east-1", "orders")
_COUNTS = QueueCounts(visible=1, in_flight=2, delayed=3)
_DEAD = "arn:aws:sqs:us-east-1:000000000000:dead"


def _refusal(address: QueueId, raw: dict[str, str]) -> SqsError:
    with pytest.raises(SqsError) as refused:
        parse_attributes(address, raw)
    return refused.value


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (
            {"deadLetterTargetArn": "dummy", "maxReceiveCount": 42},
            "Invalid value for deadLetterTargetArn.",
        ),
        (
            {"maxReceiveCount": 1},
            "Redrive policy does not contain mandatory attribute: deadLetterTargetArn.",
        ),
        (
            {"deadLetterTargetArn": _DEAD},
            "Redrive policy does not contain mandatory attribute: maxReceiveCount.",
        ),
        (
            {"deadLetterTargetArn": _DEAD, "maxReceiveCount": 1_001},
            "Invalid value for maxReceiveCount: 1001, "
            "valid values are from 1 to 1000 both inclusive.",
        ),
        (
            {"deadLetterTargetArn": _DEAD + ".fifo", "maxReceiveCount": 1},
            "Dead-letter queue must be same type of queue as the source..",
        ),
        (
            {"deadLetterTargetArn": _DEAD.replace("0000", "1111"), "maxReceiveCount": 1},
            "Dead letter target owner should be same as the source.",
        ),
        (
            {"deadLetterTargetArn": _DEAD.replace("sqs", "sns"), "maxReceiveCount": 1},
            "Only SQS queues are valid resources for deadLetterTargetArn.",
        ),
        (
            {"deadLetterTargetArn": _DEAD, "maxReceiveCount": 1, "more": 2},
            "Only following attributes are supported: [maxReceiveCount, deadLetterTargetArn].",
        ),
        ({}, "Redrive policy does not contain mandatory attribute: maxReceiveCount."),
        ([], "Redrive policy is not a valid JSON map."),
    ],
)
def test_when_a_redrive_policy_is_wrong_then_the_refusal_quotes_it(
    policy: object, reason: str
) -> None:
    """R44."""
    raw = json.dumps(policy)

    refused = _refusal(_STANDARD, {"RedrivePolicy": raw})

    assert refused.query_code == "InvalidParameterValue"
    assert (
        refused.message == f"Value {raw} for parameter RedrivePolicy is invalid. Reason: {reason}"
    )


@pytest.mark.parametrize("count", [3, "3"])
def test_when_a_redrive_policy_is_shown_then_its_count_is_a_number(count: object) -> None:
    """R44."""
    raw = json.dumps({"deadLetterTargetArn": _DEAD, "maxReceiveCount": count})

    shown = render_attributes(
        parse_attributes(_STANDARD, {"RedrivePolicy": raw}), ["RedrivePolicy"], _COUNTS
    )

    assert json.loads(shown["RedrivePolicy"]) == {
        "deadLetterTargetArn": _DEAD,
        "maxReceiveCount": 3,
    }


@pytest.mark.parametrize(
    "policy",
    [
        {"redrivePermission": "allowAll"},
        {"redrivePermission": "denyAll"},
        {"redrivePermission": "byQueue", "sourceQueueArns": [_DEAD]},
    ],
)
def test_when_a_redrive_allow_policy_is_set_then_it_is_shown_again(policy: object) -> None:
    """R44."""
    settings = parse_attributes(_STANDARD, {"RedriveAllowPolicy": json.dumps(policy)})

    shown = render_attributes(settings, ["RedriveAllowPolicy"], _COUNTS)

    assert json.loads(shown["RedriveAllowPolicy"]) == policy


def test_when_a_policy_is_set_then_it_is_shown_as_it_was_written() -> None:
    raw = {
        "RedrivePolicy": f'{{"maxReceiveCount":3, "deadLetterTargetArn":"{_DEAD}"}}',
        "RedriveAllowPolicy": '{ "redrivePermission":"denyAll"}',
    }

    settings = unpack(pack(parse_attributes(_STANDARD, raw)))

    assert render_attributes(settings, list(raw), _COUNTS) == raw


@pytest.mark.parametrize(
    "policy",
    [
        {},
        {"redrivePermission": "perhaps"},
        {"redrivePermission": "allowAll", "more": 1},
        {"redrivePermission": "byQueue", "sourceQueueArns": "dummy"},
        {"redrivePermission": "byQueue", "sourceQueueArns": ["dummy"]},
        {"redrivePermission": "byQueue", "sourceQueueArns": [{"a": 1}]},
        [],
        "text",
    ],
)
def test_when_a_redrive_allow_policy_is_none_then_its_format_is_refused(policy: object) -> None:
    refused = _refusal(_STANDARD, {"RedriveAllowPolicy": json.dumps(policy)})

    assert refused.code == "InvalidAttributeValue"
    assert refused.message == (
        "Invalid value for the parameter RedriveAllowPolicy. Reason: Amazon SQS can't create the "
        "redrive allow policy, as it\u2019s in an unsupported format."
    )


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (
            {"redrivePermission": "byQueue"},
            "When you specify the byQueue permission type, you must also specify one or more "
            "sourceQueueArns values.",
        ),
        (
            {"redrivePermission": "byQueue", "sourceQueueArns": [_DEAD] * 11},
            "The maximum number of source queue ARNs you can specify is 10.",
        ),
        (
            {"redrivePermission": "allowAll", "sourceQueueArns": [_DEAD]},
            "To specify one or more source queue ARNs, you must set redrivePermission to byQueue.",
        ),
    ],
)
def test_when_a_redrive_allow_policy_is_wrong_then_it_is_refused(
    policy: object, reason: str
) -> None:
    """R44."""
    raw = json.dumps(policy)

    refused = _refusal(_STANDARD, {"RedriveAllowPolicy": raw})

    assert refused.query_code == "InvalidParameterValue"
    assert refused.message == (
        f"Value {raw} for parameter RedriveAllowPolicy is invalid. "
        f"Reason: Amazon SQS can't create the redrive allow policy. {reason}"
    )


def test_when_a_redrive_policy_is_no_json_then_it_is_refused_and_an_empty_one_takes_it_away() -> (
    None
):
    """R44."""
    assert "not a valid JSON map" in _refusal(_STANDARD, {"RedrivePolicy": "{"}).message
    before = parse_attributes(
        _STANDARD, {"RedriveAllowPolicy": json.dumps({"redrivePermission": "denyAll"})}
    )

    after = parse_attributes(
        _STANDARD, {"RedrivePolicy": "", "RedriveAllowPolicy": ""}, before=before
    )

    assert (after.redrive, after.redrive_allow) == (None, None)

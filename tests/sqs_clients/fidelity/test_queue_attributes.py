"""GetQueueAttributes and SetQueueAttributes, as AWS answers them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .bench import FIFO, Bench, pause

pytestmark = pytest.mark.broker

POLICY = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"AWS": "*"},
                "Action": "sqs:SendMessage",
                "Resource": "arn:aws:sqs:*:*:*",
            }
        ],
    }
)


def test_when_attributes_are_set_then_they_are_changed_and_the_rest_is_not(bench: Bench) -> None:
    url = bench.make(MessageRetentionPeriod="604800", VisibilityTimeout="20")

    bench.set(url, MaximumMessageSize="2048", VisibilityTimeout="69", DelaySeconds="420")

    found = bench.attributes(url)
    assert found["MessageRetentionPeriod"] == "604800"
    assert found["MaximumMessageSize"] == "2048"
    assert found["VisibilityTimeout"] == "69"
    assert found["DelaySeconds"] == "420"


def test_when_attributes_are_set_then_only_the_modified_timestamp_moves(json_bench: Bench) -> None:
    url = json_bench.make()
    before = json_bench.attributes(url)
    pause(1.1)

    json_bench.set(url, DelaySeconds="1")

    after = json_bench.attributes(url)
    assert after["CreatedTimestamp"] == before["CreatedTimestamp"]
    assert int(after["LastModifiedTimestamp"]) > int(before["LastModifiedTimestamp"])


def test_when_some_are_asked_for_then_only_these_come(bench: Bench) -> None:
    url = bench.make()

    found = bench.attributes(url, "QueueArn", "CreatedTimestamp", "VisibilityTimeout")

    assert found.keys() == {"QueueArn", "CreatedTimestamp", "VisibilityTimeout"}


@pytest.mark.parametrize("names", [["Policy"], ["RedrivePolicy", "KmsMasterKeyId"]])
def test_when_an_attribute_has_no_value_then_it_is_left_out(bench: Bench, names: list[str]) -> None:
    assert bench.attributes(bench.make(), *names) == {}


def test_when_none_is_asked_for_then_none_comes(bench: Bench) -> None:
    answer = bench.sqs.get_queue_attributes(QueueUrl=bench.make())

    assert answer.get("Attributes", {}) == {}


def test_when_an_unknown_one_is_asked_for_then_it_is_named(bench: Bench) -> None:
    refusal = bench.refused(
        "get_queue_attributes", QueueUrl=bench.make(), AttributeNames=["Foobar"]
    )

    assert (refusal.code, refusal.message) == (
        "InvalidAttributeName",
        "Unknown Attribute Foobar.",
    )


@pytest.mark.parametrize(
    ("kind", "attributes", "code", "message"),
    [
        ({}, {"FifoQueue": "true"}, "InvalidAttributeName", "Unknown Attribute FifoQueue."),
        (
            FIFO,
            {"FifoQueue": "false"},
            "InvalidAttributeValue",
            "Invalid value for the parameter FifoQueue. "
            "Reason: Modifying queue type is not supported.",
        ),
        ({}, {"Foo": "bar"}, "InvalidAttributeName", "Unknown Attribute Foo."),
        ({}, {"QueueArn": "arn"}, "InvalidAttributeName", "Unknown Attribute QueueArn."),
        (
            {},
            {"KmsMasterKeyId": "key", "SqsManagedSseEnabled": "true"},
            "InvalidAttributeName",
            "You can use one type of server-side encryption (SSE) at one time. "
            "You can either enable KMS SSE or SQS SSE.",
        ),
    ],
)
def test_when_a_change_is_not_allowed_then_aws_says_why(
    bench: Bench, kind: dict[str, str], attributes: dict[str, str], code: str, message: str
) -> None:
    refusal = bench.refused(
        "set_queue_attributes", QueueUrl=bench.make(**kind), Attributes=attributes
    )

    assert (refusal.code, refusal.message, refusal.status) == (code, message, 400)


def test_when_a_fifo_queue_is_told_that_it_is_one_then_nothing_happens(bench: Bench) -> None:
    bench.set(bench.make(**FIFO), FifoQueue="true")


@pytest.mark.parametrize("attribute", ["ContentBasedDeduplication", "DeduplicationScope"])
def test_when_a_standard_queue_is_given_a_fifo_attribute_then_it_is_unknown(
    bench: Bench, attribute: str
) -> None:
    refusal = bench.refused(
        "set_queue_attributes", QueueUrl=bench.make(), Attributes={attribute: "true"}
    )

    assert refusal.code == "InvalidAttributeName"
    assert attribute in refusal.message


def test_when_de_duplication_by_content_is_switched_then_it_is_seen(bench: Bench) -> None:
    url = bench.make(**FIFO, ContentBasedDeduplication="true")

    bench.set(url, ContentBasedDeduplication="false")

    found = bench.attributes(url)
    assert found["ContentBasedDeduplication"] == "false"
    assert (found["DeduplicationScope"], found["FifoThroughputLimit"]) == ("queue", "perQueue")


def test_when_a_policy_is_set_then_it_is_given_back_until_it_is_emptied(bench: Bench) -> None:
    url = bench.make()

    bench.set(url, Policy=POLICY)
    found = bench.attributes(url, "Policy")
    bench.set(url, Policy="")

    assert json.loads(found["Policy"]) == json.loads(POLICY)
    assert "Policy" not in bench.attributes(url)


def test_when_encryption_is_chosen_then_the_attributes_say_which(bench: Bench) -> None:
    names = ("KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "SqsManagedSseEnabled")
    kms = {
        "KmsMasterKeyId": "testKeyId",
        "KmsDataKeyReusePeriodSeconds": "6000",
        "SqsManagedSseEnabled": "false",
    }
    with_kms, with_sqs = bench.make(), bench.make()

    bench.set(with_kms, **kms)
    bench.set(with_sqs, SqsManagedSseEnabled="true")

    assert bench.attributes(with_kms, *names) == kms
    assert bench.attributes(with_sqs, *names) == {"SqsManagedSseEnabled": "true"}


@pytest.mark.parametrize("count", [10, "10"])
def test_when_a_redrive_policy_is_set_then_it_reads_as_json(bench: Bench, count: Any) -> None:
    dead, url = bench.make(), bench.make()
    policy = {"deadLetterTargetArn": bench.arn(dead), "maxReceiveCount": count}

    bench.set(url, RedrivePolicy=json.dumps(policy))

    found = json.loads(bench.attributes(url, "RedrivePolicy")["RedrivePolicy"])
    assert found["deadLetterTargetArn"] == bench.arn(dead)
    assert int(found["maxReceiveCount"]) == 10


def test_when_the_redrive_policy_is_emptied_then_it_is_gone(bench: Bench) -> None:
    url, dead = bench.make_with_dead_letters()

    bench.set(url, RedrivePolicy="")

    assert bench.attributes(url, "RedrivePolicy") == {}
    assert bench.sqs.list_dead_letter_source_queues(QueueUrl=dead).get("queueUrls", []) == []


@pytest.mark.parametrize(
    "policy",
    [
        {},
        {"deadLetterTargetArn": "DEAD"},
        {"maxReceiveCount": "42"},
        {"deadLetterTargetArn": "DEAD", "maxReceiveCount": "invalid"},
        {"deadLetterTargetArn": "DEAD", "maxReceiveCount": 0},
        {"deadLetterTargetArn": "DEAD", "maxReceiveCount": 1001},
        {"deadLetterTargetArn": "dummy", "maxReceiveCount": 42},
        {"deadLetterTargetArn": "NOWHERE", "maxReceiveCount": 42},
    ],
)
def test_when_a_redrive_policy_is_invalid_then_it_is_refused(
    bench: Bench, policy: dict[str, Any]
) -> None:
    dead = bench.arn(bench.make())
    arns = {"DEAD": dead, "NOWHERE": f"{dead}-not"}
    if (target := policy.get("deadLetterTargetArn")) in arns:
        policy = {**policy, "deadLetterTargetArn": arns[target]}

    refusal = bench.refused(
        "set_queue_attributes",
        QueueUrl=bench.make(),
        Attributes={"RedrivePolicy": json.dumps(policy)},
    )

    # AWS has other words for a queue that is not there, in other places.
    assert refusal.code in ("InvalidParameterValue", "AWS.SimpleQueueService.NonExistentQueue")


@pytest.mark.parametrize(
    "form",
    [
        '{{"deadLetterTargetArn":"{arn}","maxReceiveCount":5}}',
        '{{"maxReceiveCount": 10, "deadLetterTargetArn": "{arn}"}}',
    ],
)
def test_when_a_redrive_policy_is_set_then_it_is_given_back_as_it_was_written(
    bench: Bench, form: str
) -> None:
    policy = form.format(arn=bench.arn(bench.make()))
    name = bench.name()

    url = bench.create(QueueName=name, Attributes={"RedrivePolicy": policy})

    assert bench.attributes(url, "RedrivePolicy") == {"RedrivePolicy": policy}
    spaced = json.dumps(json.loads(policy), indent=2)  # the same policy, so the same queue
    assert bench.create(QueueName=name, Attributes={"RedrivePolicy": spaced}) == url


def test_when_a_dead_letter_arn_is_none_then_the_policy_is_quoted(bench: Bench) -> None:
    policy = json.dumps({"deadLetterTargetArn": "dummy", "maxReceiveCount": 42})

    refusal = bench.refused(
        "create_queue", QueueName=bench.name(), Attributes={"RedrivePolicy": policy}
    )

    assert refusal.code == "InvalidParameterValue"
    assert refusal.message == (
        f"Value {policy} for parameter RedrivePolicy is invalid. "
        "Reason: Invalid value for deadLetterTargetArn."
    )


@pytest.mark.parametrize("kind", [{}, FIFO])
def test_when_the_dead_letter_queue_is_of_the_other_kind_then_it_is_refused(
    bench: Bench, kind: dict[str, str]
) -> None:
    dead = bench.make(**({} if kind else FIFO))

    refusal = bench.refused(
        "set_queue_attributes",
        QueueUrl=bench.make(**kind),
        Attributes={"RedrivePolicy": bench.redrive(dead, 1)},
    )

    assert refusal.code == "InvalidParameterValue"


@pytest.mark.parametrize(
    "policy",
    [
        {"redrivePermission": "allowAll"},
        {"redrivePermission": "denyAll"},
        {"redrivePermission": "byQueue", "sourceQueueArns": ["ARN"]},
    ],
)
def test_when_a_redrive_allow_policy_is_set_then_it_is_given_back(
    bench: Bench, policy: dict[str, Any]
) -> None:
    url = bench.make()
    if "sourceQueueArns" in policy:
        policy = {**policy, "sourceQueueArns": [bench.arn(bench.make())]}

    bench.set(url, RedriveAllowPolicy=json.dumps(policy))

    found = bench.attributes(url, "RedriveAllowPolicy")["RedriveAllowPolicy"]
    assert json.loads(found) == policy

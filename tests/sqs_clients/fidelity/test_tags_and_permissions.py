"""Tags and permissions, as AWS keeps them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .bench import Bench

pytestmark = pytest.mark.broker

OTHER = "668614515564"
LABEL = "crossaccountpermission"


def tags(bench: Bench, url: str) -> dict[str, str]:
    return dict(bench.sqs.list_queue_tags(QueueUrl=url).get("Tags", {}))


def statements(bench: Bench, url: str) -> list[dict[str, Any]]:
    policy = bench.attributes(url, "Policy").get("Policy")
    return list(json.loads(policy)["Statement"]) if policy else []


def permit(bench: Bench, url: str, label: str = LABEL, *accounts: str) -> None:
    bench.sqs.add_permission(
        QueueUrl=url,
        AWSAccountIds=list(accounts) or [bench.account_id],
        Actions=["ReceiveMessage"],
        Label=label,
    )


def test_when_a_queue_is_tagged_then_its_tags_can_be_listed_and_removed(bench: Bench) -> None:
    url = bench.make()

    bench.sqs.tag_queue(QueueUrl=url, Tags={"tag1": "value1", "tag2": "value2", "tag3": ""})
    all_of_them = tags(bench, url)
    bench.sqs.untag_queue(QueueUrl=url, TagKeys=["tag1", "tag3", "no such tag"])

    assert all_of_them == {"tag1": "value1", "tag2": "value2", "tag3": ""}
    assert tags(bench, url) == {"tag2": "value2"}
    bench.sqs.untag_queue(QueueUrl=url, TagKeys=["tag2"])
    assert tags(bench, url) == {}


def test_when_it_is_tagged_again_then_old_and_new_tags_are_merged(bench: Bench) -> None:
    url = bench.make()

    bench.sqs.tag_queue(QueueUrl=url, Tags={"tag1": "value1", "tag2": "value2"})
    bench.sqs.tag_queue(QueueUrl=url, Tags={"tag1": "VALUE1", "Tag1": "other"})

    assert tags(bench, url) == {"tag1": "VALUE1", "tag2": "value2", "Tag1": "other"}


def test_when_a_queue_is_made_with_tags_then_it_has_them(bench: Bench) -> None:
    given = {"tag1": "value1", "tag2": "value2"}

    url = bench.create(QueueName=bench.name(), tags=given)

    assert tags(bench, url) == given


def test_when_a_queue_has_no_tags_then_the_list_is_empty(bench: Bench) -> None:
    assert tags(bench, bench.make()) == {}


def test_when_a_permission_is_added_then_the_policy_says_so(bench: Bench) -> None:
    url = bench.make()

    permit(bench, url, LABEL, bench.account_id, OTHER)

    policy = json.loads(bench.attributes(url, "Policy")["Policy"])
    [statement] = policy["Statement"]
    arns = {f"arn:aws:iam::{account}:root" for account in (bench.account_id, OTHER)}
    assert policy["Version"] == "2008-10-17"
    assert policy["Id"] == f"{bench.arn(url)}/SQSDefaultPolicy"
    assert set(statement["Principal"].pop("AWS")) == arns
    assert statement == {
        "Sid": LABEL,
        "Effect": "Allow",
        "Principal": {},
        "Action": "SQS:ReceiveMessage",
        "Resource": bench.arn(url),
    }


def test_when_permissions_come_and_go_then_the_policy_follows(bench: Bench) -> None:
    url = bench.make()

    permit(bench, url, "one")
    permit(bench, url, "two")
    bench.sqs.remove_permission(QueueUrl=url, Label="one")
    left = statements(bench, url)
    bench.sqs.remove_permission(QueueUrl=url, Label="two")

    [statement] = left
    assert statement["Sid"] == "two"
    assert statement["Principal"] == {"AWS": f"arn:aws:iam::{bench.account_id}:root"}
    assert bench.attributes(url, "Policy") == {}


def test_when_a_label_is_used_twice_then_it_already_exists(bench: Bench) -> None:
    url = bench.make()
    permit(bench, url)

    refusal = bench.refused(
        "add_permission",
        QueueUrl=url,
        AWSAccountIds=[OTHER],
        Actions=["ReceiveMessage"],
        Label=LABEL,
    )

    assert (refusal.code, refusal.message) == (
        "InvalidParameterValue",
        f"Value {LABEL} for parameter Label is invalid. Reason: Already exists.",
    )


def test_when_a_label_is_unknown_then_it_cannot_be_removed(bench: Bench) -> None:
    refusal = bench.refused("remove_permission", QueueUrl=bench.make(), Label=LABEL)

    assert (refusal.code, refusal.message) == (
        "InvalidParameterValue",
        f"Value {LABEL} for parameter Label is invalid. Reason: can't find label.",
    )


def test_when_an_action_is_unknown_then_no_permission_is_added(bench: Bench) -> None:
    refusal = bench.refused(
        "add_permission",
        QueueUrl=bench.make(),
        AWSAccountIds=[OTHER],
        Actions=["DoAsYouLike"],
        Label=LABEL,
    )

    assert refusal.code == "InvalidParameterValue"

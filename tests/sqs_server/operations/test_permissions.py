"""Permissions: statements in the queue's policy."""

import json
from typing import Any

import pytest

from .harness import ACCOUNT, REGION, Service


async def _policy(service: Service, url: str) -> Any:
    return json.loads((await service.attributes(url, "Policy"))["Policy"])


async def _add(service: Service, url: str, label: str, accounts: list[str], *actions: str) -> None:
    await service.call(
        "AddPermission", QueueUrl=url, Label=label, AWSAccountIds=accounts, Actions=list(actions)
    )


async def test_when_a_permission_is_added_then_the_policy_has_it_as_aws_writes_it(
    service: Service,
) -> None:
    """R44."""
    url = await service.queue()
    arn = f"arn:aws:sqs:{REGION}:{ACCOUNT}:orders"

    await _add(service, url, "one", ["111111111111"], "ReceiveMessage")
    await _add(service, url, "two", ["111111111111", "222222222222"], "SendMessage", "*")

    assert await _policy(service, url) == {
        "Version": "2008-10-17",
        "Id": f"{arn}/SQSDefaultPolicy",
        "Statement": [
            {
                "Sid": "one",
                "Effect": "Allow",
                "Principal": {"AWS": "arn:aws:iam::111111111111:root"},
                "Action": "SQS:ReceiveMessage",
                "Resource": arn,
            },
            {
                "Sid": "two",
                "Effect": "Allow",
                "Principal": {
                    "AWS": ["arn:aws:iam::111111111111:root", "arn:aws:iam::222222222222:root"]
                },
                "Action": ["SQS:SendMessage", "SQS:*"],
                "Resource": arn,
            },
        ],
    }


async def test_when_the_last_permission_is_removed_then_the_policy_is_gone(
    service: Service,
) -> None:
    """R44."""
    url = await service.queue()
    await _add(service, url, "one", ["111111111111"], "ReceiveMessage")
    await _add(service, url, "two", ["111111111111"], "ReceiveMessage")

    await service.call("RemovePermission", QueueUrl=url, Label="one")
    labels = [each["Sid"] for each in (await _policy(service, url))["Statement"]]
    await service.call("RemovePermission", QueueUrl=url, Label="two")
    refused = await service.refusal("RemovePermission", QueueUrl=url, Label="two")

    assert labels == ["two"]
    assert await service.attributes(url, "Policy") == {}
    assert refused.message == (
        "Value two for parameter Label is invalid. Reason: can't find label."
    )


async def test_when_a_policy_was_set_then_permissions_join_its_statements(
    service: Service,
) -> None:
    """R44."""
    own = {"Version": "2012-10-17", "Statement": {"Sid": "own", "Effect": "Deny"}}
    url = await service.queue(Policy=json.dumps(own))

    await _add(service, url, "added", ["111111111111"], "ReceiveMessage")

    policy = await _policy(service, url)
    assert policy["Version"] == "2012-10-17"
    assert [statement["Sid"] for statement in policy["Statement"]] == ["own", "added"]


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        (
            {"Label": "taken"},
            "InvalidParameterValue",
            "Value taken for parameter Label is invalid. Reason: Already exists.",
        ),
        (
            {"Actions": ["RemovePermission"]},
            "InvalidParameterValue",
            "Value SQS:RemovePermission for parameter ActionName is invalid. "
            "Reason: Only the queue owner is allowed to invoke this action.",
        ),
        (
            {"Actions": []},
            "MissingParameter",
            "The request must contain the parameter Actions.",
        ),
        (
            {"AWSAccountIds": []},
            "InvalidParameterValue",
            "Value [] for parameter PrincipalId is invalid. Reason: Unable to verify.",
        ),
        (
            {"Actions": ["SendMessage"] * 8},
            "OverLimit",
            "8 Actions were found, maximum allowed is 7.",
        ),
    ],
)
async def test_when_a_permission_is_not_allowed_then_the_refusal_is_in_aws_words(
    service: Service, changes: dict[str, Any], code: str, message: str
) -> None:
    """R44."""
    url = await service.queue()
    await _add(service, url, "taken", ["111111111111"], "ReceiveMessage")
    parameters: dict[str, Any] = {
        "Label": "new",
        "AWSAccountIds": ["111111111111"],
        "Actions": ["SendMessage"],
        **changes,
    }

    refused = await service.refusal("AddPermission", QueueUrl=url, **parameters)

    assert (refused.query_code, refused.message) == (code, message)


@pytest.mark.parametrize("changes", [{"Label": "a b"}, {"Actions": ["Fly"]}])
async def test_when_a_label_or_action_cannot_be_then_it_is_refused(
    service: Service, changes: dict[str, Any]
) -> None:
    """R44."""
    url = await service.queue()
    parameters: dict[str, Any] = {
        "Label": "new",
        "AWSAccountIds": ["111111111111"],
        "Actions": ["SendMessage"],
        **changes,
    }

    refused = await service.refusal("AddPermission", QueueUrl=url, **parameters)

    assert refused.query_code == "InvalidParameterValue"


async def test_when_a_policy_is_full_then_no_permission_is_added(service: Service) -> None:
    """R44."""
    url = await service.queue()
    for number in range(20):
        await _add(service, url, f"label{number}", ["111111111111"], "SendMessage")

    refused = await service.refusal(
        "AddPermission",
        QueueUrl=url,
        Label="one-more",
        AWSAccountIds=["111111111111"],
        Actions=["SendMessage"],
    )

    assert refused.code == "OverLimit"

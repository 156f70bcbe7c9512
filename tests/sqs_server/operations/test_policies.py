"""Which documents AWS takes for a queue's access policy."""

import json
from typing import Any

import pytest

from gateways.sqs_server.errors import SqsError
from gateways.sqs_server.operations.permissions import check_policy

_STATEMENT = {
    "Sid": "send",
    "Effect": "Allow",
    "Principal": {"AWS": "*"},
    "Action": "sqs:SendMessage",
    "Resource": "arn:aws:sqs:us-east-1:123456789012:orders",
    "Condition": {"ArnEquals": {"aws:SourceArn": "arn"}},
}


@pytest.mark.parametrize(
    "policy",
    [
        {"Version": "2012-10-17", "Statement": [_STATEMENT]},
        {"Version": "2008-10-17", "Id": "mine", "Statement": _STATEMENT},
        {"Statement": [{"Effect": "Allow", "Principal": "*", "Action": "*"}] * 20},
    ],
)
def test_when_a_policy_is_one_then_it_is_taken(policy: object) -> None:
    check_policy(json.dumps(policy))


@pytest.mark.parametrize(
    "policy",
    [
        [],
        "text",
        533,
        None,
        {},
        {"Version": "2012-10-17", "Statement": []},
        {"Version": "4532-10-17", "Statement": [_STATEMENT]},
        {"Version": [], "Statement": [_STATEMENT]},
        {"Version": "2012-10-17", "Statement": [_STATEMENT], "Colour": "red"},
        {"Version": "2012-10-17", "Statement": [{**_STATEMENT, "Colour": "red"}]},
        {"Version": "2012-10-17", "Statement": {**_STATEMENT, "Effect": []}},
        {"Version": "2012-10-17", "Statement": ["text"]},
    ],
)
def test_when_a_policy_is_none_then_it_is_refused(policy: Any) -> None:
    with pytest.raises(SqsError) as refused:
        check_policy(json.dumps(policy))

    assert refused.value.code == "InvalidAttributeValue"
    assert refused.value.message == "Invalid value for the parameter Policy."


def test_when_a_policy_has_too_many_statements_then_they_are_counted() -> None:
    with pytest.raises(SqsError) as refused:
        check_policy(json.dumps({"Version": "2012-10-17", "Statement": [_STATEMENT] * 22}))

    assert (refused.value.code, refused.value.status) == ("OverLimit", 403)
    assert refused.value.message == (
        "22 statements were found in the submitted policy, max allowed is 20"
    )

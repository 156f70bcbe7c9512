"""AddPermission and RemovePermission: statements in the queue's policy, known by their labels.

The policy is kept and shown; the server does not enforce it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from pump.clock import Clock

from ..errors import invalid_attribute_value, invalid_value, missing_parameter, over_limit
from ..model import QueueId, SqsQueueSettings, partition_of
from .parameters import Changes, text, texts

if TYPE_CHECKING:
    from ..protocol import Call


MAX_ACTIONS: Final = 7

_SHAREABLE: Final = frozenset(
    {
        "*",
        "ChangeMessageVisibility",
        "DeleteMessage",
        "GetQueueAttributes",
        "GetQueueUrl",
        "ListDeadLetterSourceQueues",
        "PurgeQueue",
        "ReceiveMessage",
        "SendMessage",
    }
)
_OWNERS_ONLY: Final = frozenset(
    {
        "AddPermission",
        "CancelMessageMoveTask",
        "CreateQueue",
        "DeleteQueue",
        "ListMessageMoveTasks",
        "ListQueueTags",
        "ListQueues",
        "RemovePermission",
        "SetQueueAttributes",
        "StartMessageMoveTask",
        "TagQueue",
        "UntagQueue",
    }
)
_LABEL: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")
_ACCOUNT: Final = re.compile(r"\d{12}")


@attrs.frozen(eq=False)
class Permissions:
    """Operations on a queue's policy."""

    changes: Changes
    clock: Clock

    async def add_permission(self, call: Call) -> Mapping[str, Any]:
        """A statement that lets other accounts do some actions."""
        label = _checked_label(text(call.parameters, "Label"))
        actions = _checked_actions(texts(call.parameters, "Actions"))
        accounts = _checked_accounts(texts(call.parameters, "AWSAccountIds"))

        def add(settings: SqsQueueSettings) -> SqsQueueSettings:
            policy = _policy(settings)
            statements: list[Any] = policy["Statement"]
            if any(_label_of(statement) == label for statement in statements):
                raise invalid_value("Label", label, "Already exists.")
            if len(statements) >= MAX_STATEMENTS:
                raise over_limit(
                    f"{len(statements) + 1} Statements were found, "
                    f"maximum allowed is {MAX_STATEMENTS}."
                )
            statements.append(_statement(settings.address, label, accounts, actions))
            return self._with_policy(settings, policy)

        await self.changes.change(call, add)
        return {}

    async def remove_permission(self, call: Call) -> Mapping[str, Any]:
        """Takes away the statement with that label."""
        label = text(call.parameters, "Label")

        def remove(settings: SqsQueueSettings) -> SqsQueueSettings:
            policy = _policy(settings)
            kept = [each for each in policy["Statement"] if _label_of(each) != label]
            if len(kept) == len(policy["Statement"]):
                raise invalid_value("Label", label, "can't find label.")
            return self._with_policy(settings, {**policy, "Statement": kept})

        await self.changes.change(call, remove)
        return {}

    def _with_policy(
        self, settings: SqsQueueSettings, policy: Mapping[str, Any]
    ) -> SqsQueueSettings:
        return attrs.evolve(
            settings,
            policy=json.dumps(policy) if policy["Statement"] else None,
            modified_at_s=int(self.clock.time_s()),
        )


def _policy(settings: SqsQueueSettings) -> dict[str, Any]:
    """The queue's policy with its statements in a list, or a new one."""
    if settings.policy is None:
        return {
            "Version": "2008-10-17",
            "Id": f"{settings.address.arn}/SQSDefaultPolicy",
            "Statement": [],
        }
    policy: dict[str, Any] = json.loads(settings.policy)
    statements = policy.get("Statement", [])
    return {**policy, "Statement": statements if isinstance(statements, list) else [statements]}


def _statement(
    address: QueueId, label: str, accounts: Sequence[str], actions: Sequence[str]
) -> dict[str, Any]:
    partition = partition_of(address.region)
    principals = [f"arn:{partition}:iam::{account}:root" for account in accounts]
    return {
        "Sid": label,
        "Effect": "Allow",
        "Principal": {"AWS": _alone_or_all(principals)},
        "Action": _alone_or_all([f"SQS:{action}" for action in actions]),
        "Resource": address.arn,
    }


def _alone_or_all(values: list[str]) -> str | list[str]:
    return values[0] if len(values) == 1 else values


def _label_of(statement: object) -> object:
    return statement.get("Sid") if isinstance(statement, Mapping) else None


def _checked_label(label: str) -> str:
    if _LABEL.fullmatch(label) is None:
        raise invalid_value(
            "Label",
            label,
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length",
        )
    return label


def _checked_actions(actions: Sequence[str]) -> Sequence[str]:
    if not actions:
        raise missing_parameter("Actions")
    if len(actions) > MAX_ACTIONS:
        raise over_limit(f"{len(actions)} Actions were found, maximum allowed is {MAX_ACTIONS}.")
    for action in actions:
        if action in _OWNERS_ONLY:
            raise invalid_value(
                "ActionName",
                f"SQS:{action}",
                "Only the queue owner is allowed to invoke this action.",
            )
        if action not in _SHAREABLE:
            raise invalid_value(
                "ActionName",
                f"SQS:{action}",
                "Please refer to the appropriate WSDL for a list of valid actions. ",
            )
    return actions


def _checked_accounts(accounts: Sequence[str]) -> Sequence[str]:
    if not accounts or any(_ACCOUNT.fullmatch(account) is None for account in accounts):
        raise invalid_value("PrincipalId", f"[{', '.join(accounts)}]", "Unable to verify.")
    return accounts


# A queue's access policy: whether a document can be one. Pure; nothing enforces it.

MAX_STATEMENTS: Final = 20
_VERSIONS: Final = ("2008-10-17", "2012-10-17")
_MEMBERS: Final = frozenset({"Version", "Id", "Statement"})
_STATEMENT_MEMBERS: Final = frozenset(
    {
        "Sid",
        "Effect",
        "Principal",
        "NotPrincipal",
        "Action",
        "NotAction",
        "Resource",
        "NotResource",
        "Condition",
    }
)


def check_policy(raw: str) -> None:
    """SqsError when AWS would not take it for a policy."""
    try:
        policy = json.loads(raw)
    except (ValueError, RecursionError):  # nested deeper than anything a policy needs
        policy = None
    if not isinstance(policy, dict) or not _MEMBERS.issuperset(policy):
        raise invalid_attribute_value("Policy")
    statements = policy.get("Statement")
    if isinstance(statements, list) and len(statements) > MAX_STATEMENTS:
        raise over_limit(
            f"{len(statements)} statements were found in the submitted policy, "
            f"max allowed is {MAX_STATEMENTS}"
        )
    if policy.get("Version", "2008-10-17") not in _VERSIONS or not _are_statements(statements):
        raise invalid_attribute_value("Policy")


def _are_statements(statements: Any) -> bool:
    if isinstance(statements, dict):  # one may come without a list around it
        statements = [statements]
    return (
        isinstance(statements, list)
        and len(statements) > 0
        and all(_is_statement(statement) for statement in statements)
    )


def _is_statement(statement: Any) -> bool:
    return (
        isinstance(statement, dict)
        and _STATEMENT_MEMBERS.issuperset(statement)
        and statement.get("Effect") in ("Allow", "Deny")
    )

"""A queue's access policy: whether a document can be one. Pure; nothing enforces it."""

from __future__ import annotations

import json
from typing import Any, Final

from ..errors import invalid_attribute_value, over_limit

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

"""Cases for the diagnosis: queues of which all is well, but for what a test says otherwise."""

from __future__ import annotations

import json
from typing import Any

from gateways.sqs.doctor import DELETE, EXTEND, Case, QueueFacts, findings_of
from pump import Command, Subscription
from pump.findings import Finding, HandlerTimes, Level

from .paper_aws import new_attributes

DAY_S = 86_400
OTHER_ARN = "arn:aws:sqs:eu-west-1:123456789012:elsewhere"


class PlaceOrder(Command):
    """An order."""


def arn_of(queue: str) -> str:
    return new_attributes(queue)["QueueArn"]


def facts(
    queue: str,
    *,
    days: float = 4,
    redrive: tuple[str, int | str] | None = None,
    granted: frozenset[str] = frozenset({DELETE, EXTEND}),
    denied: frozenset[str] = frozenset(),
    **attributes: str,
) -> QueueFacts:
    told = {**new_attributes(queue), "MessageRetentionPeriod": f"{days * DAY_S:.0f}", **attributes}
    if redrive is not None:
        policy = {"deadLetterTargetArn": redrive[0], "maxReceiveCount": redrive[1]}
        told["RedrivePolicy"] = json.dumps(policy)
    return QueueFacts(queue=queue, attributes=told, granted=granted, denied=denied)


def missing(queue: str, *, is_ours: bool = True) -> QueueFacts:
    return QueueFacts(queue=queue, exists=False, is_ours=is_ours)


def a_case(
    *known: QueueFacts,
    times: HandlerTimes | None = None,
    queue: str = "orders",
    dead: str | None = "dead",
    invalid: str | None = None,
    **fields: Any,
) -> Case:
    subscription = Subscription(
        queue=queue,
        request=PlaceOrder,
        dead_letter_queue=dead,
        invalid_queue=invalid,
        **fields,
    )
    by_name = {each.queue: each for each in known}
    for name, days in ((queue, 4), (dead, 14), (invalid, 14)):
        if name is not None:
            by_name.setdefault(name, facts(name, days=days, granted=frozenset({DELETE, EXTEND})))
    by_arn = {each.resource: each for each in by_name.values()}
    return Case(subscription=subscription, facts={**by_arn, **by_name}, times=times)


def problems(case: Case) -> list[Finding]:
    """Everything but that all is well."""
    found = findings_of(case)
    assert {each.subject for each in found} == {"subscription orders"}
    assert all(each.remedy for each in found if each.level is not Level.OK)
    return [each for each in found if each.level is not Level.OK]


def the_only(case: Case, level: Level) -> Finding:
    [finding] = problems(case)
    assert finding.level is level
    return finding


def notes(case: Case) -> list[str]:
    return [each.detail for each in findings_of(case) if each.level is Level.OK]

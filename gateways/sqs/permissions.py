"""Permissions: which IAM actions a subscription needs, and what trying them has shown. Pure.

SQS has no dry run. Tried is only what can change nothing even on a server that checks nothing:
a batch that deletes, or extends, a receipt handle that was never issued (the reply's `Failed`
proves that the call itself was allowed), and a batch that sends no message (a denial is certain;
that there was none proves nothing, because AWS does not say whether it looks at the permission
or at the batch first). A receive cannot be tried: it would take a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pump.findings import Finding, error, ok, warning

from .queue_facts import QueueFacts

READ = "sqs:GetQueueAttributes"
FIND = "sqs:GetQueueUrl"
RECEIVE = "sqs:ReceiveMessage"
DELETE = "sqs:DeleteMessage"
EXTEND = "sqs:ChangeMessageVisibility"
SEND = "sqs:SendMessage"

TO_CONSUME = (RECEIVE, DELETE, EXTEND)
TO_ROUTE = (SEND,)


def permission_findings(subject: str, roles: Iterable[tuple[str, QueueFacts]]) -> Iterator[Finding]:
    """Name what is denied with the resource to grant it on, then what is known of the rest."""
    granted, open_questions = [], []
    for position, (role, facts) in enumerate(roles):
        if not facts.exists or facts.trouble:
            continue
        yield from _denied(subject, role, facts)
        needed = TO_ROUTE if position else TO_CONSUME
        for action in needed:
            if action in facts.granted:
                granted.append(f"{action} on {facts.queue!r}")
            elif action not in facts.denied and FIND not in facts.denied:
                open_questions.append(f"{action} on {facts.queue!r}")
    if granted or open_questions:
        yield _known(subject, granted, open_questions)


def _denied(subject: str, role: str, facts: QueueFacts) -> Iterator[Finding]:
    policy = f"on {facts.resource} in the policy of the app's role"
    if READ in facts.denied:
        detail = f"{READ} on {role} {facts.queue!r} is denied, so its settings were not examined"
        yield warning(subject, detail, f"allow {READ} {policy}")
    needed = sorted(facts.denied - {READ})
    if needed:
        verb = "is" if len(needed) == 1 else "are"
        or_url = ", or name the queue by its URL" if FIND in needed else ""
        yield error(
            subject,
            f"{', '.join(needed)} on {role} {facts.queue!r} {verb} denied",
            f"allow {', '.join(needed)} {policy}{or_url}",
        )


def _known(subject: str, granted: list[str], open_questions: list[str]) -> Finding:
    parts = []
    if granted:
        parts.append(f"granted: {', '.join(granted)}")
    if open_questions:
        parts.append(f"not proven without using it: {', '.join(open_questions)}")
    return ok(subject, "permissions " + "; ".join(parts))

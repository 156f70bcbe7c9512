"""The doctor of SQS queues: asks SQS about them, changes nothing, and hands on the diagnosis."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from pump.clock import format_duration
from pump.errors import AccessDenied, ConfigurationError, PumpError, QueueNotFound
from pump.findings import Finding, HandlerTimes, error, error_from, ok, warning
from pump.subscription import DeadLetter, FailureStrategy, MakeChannels, QueueSpec, Subscription

from .._aws.sdk_transport import Transport
from .calls import FIFO_SUFFIX, QueueAddress, QueueCalls, QueueUrls
from .queue_settings import MAX_RETENTION, QueueSettings, whole_seconds

# Diagnosis: what an operator should know of a subscription's queues, from facts. Pure.

_LONGEST_S = whole_seconds(MAX_RETENTION)
_UNSEEN = "SQS says the same of a queue that these credentials may not see"


@attrs.frozen(kw_only=True)
class Case:
    """One subscription, with the facts about every queue it has to do with."""

    subscription: Subscription
    facts: Mapping[str, QueueFacts]
    """By what the subscription calls a queue, and for redrive targets by ARN."""
    times: HandlerTimes | None = None

    @property
    def subject(self) -> str:
        """Whom the findings are about."""
        return f"subscription {self.subscription.name}"

    @property
    def source(self) -> QueueFacts:
        """The queue that is consumed."""
        return self.facts[self.subscription.queue]

    def roles(self) -> Iterator[tuple[str, QueueFacts]]:
        """Every queue the subscription names, with what it is for."""
        subscription = self.subscription
        yield "queue", self.source
        if subscription.dead_letter_queue is not None:
            yield "dead-letter queue", self.facts[subscription.dead_letter_queue]
        if subscription.invalid_queue not in (None, subscription.dead_letter_queue):
            yield "invalid-message queue", self.facts[subscription.invalid_queue]


def findings_of(case: Case) -> list[Finding]:
    """Everything worth saying, or that all is well; then the permissions."""
    found = [
        *_existence(case),
        *_settings(case),
        *_order(case),
        *_retention(case),
        *_redrive(case),
        *_expiry(case),
        *_visibility(case),
    ]
    return [*(found or [_as_it_should_be(case)]), *permission_findings(case.subject, case.roles())]


def _existence(case: Case) -> Iterator[Finding]:
    for role, facts in case.roles():
        if facts.trouble:
            yield error_from(case.subject, facts.trouble)
        elif facts.exists:
            continue
        elif case.subscription.make_channels is not MakeChannels.CREATE:
            yield error(
                case.subject,
                f"{role} {facts.queue!r} does not exist, and make_channels is "
                f"{case.subscription.make_channels.value!r}",
                f"create the queue, or set make_channels='create'; {_UNSEEN}",
            )
        elif not facts.is_ours:
            yield error(
                case.subject,
                f"{role} {facts.queue!r} does not exist, and is not the app's to make",
                f"create it where it belongs, or give its name alone; {_UNSEEN}",
            )
        else:
            yield ok(case.subject, f"{role} {facts.queue!r} will be made when the app opens")


def _settings(case: Case) -> Iterator[Finding]:
    """What would stop the app when it opens, or is silently not as it was asked for."""
    # A name that is none has been told of, and would be again.
    for spec in () if _has_trouble(case) else case.subscription.queue_specs():
        try:
            differences = _differences(case, spec, QueueSettings.from_spec(spec))
        except PumpError as fault:
            yield error_from(case.subject, fault)
            continue
        said = f"queue {spec.name!r} is not as it was asked for: {', '.join(differences)}"
        if differences and case.subscription.make_channels is MakeChannels.VALIDATE:
            yield error(case.subject, said, "change the queue, or what is asked for")
        elif differences:
            yield warning(case.subject, said, "change the queue: one that exists is left as it is")


def _differences(case: Case, spec: QueueSpec, settings: QueueSettings) -> list[str]:
    attributes = case.facts[spec.name].attributes
    target = case.facts.get(spec.dead_letter_queue or "")
    if attributes is None or (target is not None and target.attributes is None):
        return []
    return settings.differences(
        attributes,
        dead_letter_arn=None if target is None else target.resource,
        tags=settings.tags,
    )


def _order(case: Case) -> Iterator[Finding]:
    source, target = case.subscription.queue, case.subscription.dead_letter_queue
    # With native redrive SQS forbids it altogether, and the settings have said so.
    if target is None or case.subscription.max_receive_count or _has_trouble(case):
        return
    address = QueueAddress.parse(source)
    if address.is_fifo and not QueueAddress.parse(target).is_fifo:
        name = address.name.removesuffix(FIFO_SUFFIX)
        yield warning(
            case.subject,
            f"dead-letter queue {target!r} is a standard queue, and {source!r} is FIFO: dead "
            f"letters lose their order, and one may be there twice after a crash",
            f"name a FIFO queue, such as '{name}-dead{FIFO_SUFFIX}'",
        )


def _has_trouble(case: Case) -> bool:
    return any(facts.trouble for _, facts in case.roles())


def _retention(case: Case) -> Iterator[Finding]:
    source_s = case.source.retention_s
    for role, facts in _targets(case):
        target_s = facts.retention_s
        if source_s is None or target_s is None:
            continue
        kept = f"{role} {facts.queue!r} keeps messages for {format_duration(target_s)}"
        if _keeps_their_age(case.source, facts) and target_s <= source_s:
            yield warning(
                case.subject,
                f"{kept}, counted from when they were first sent; they may have spent "
                f"{format_duration(source_s)} in {case.source.queue!r} before SQS moves them, and "
                f"would be gone before anyone looks",
                _longer(case, target_s),
            )
        elif target_s < source_s:
            yield warning(
                case.subject,
                f"{kept}, and {case.source.queue!r} for {format_duration(source_s)}: rejected "
                f"messages should stay longer than others, not shorter",
                _longer(case, target_s),
            )


def _longer(case: Case, target_s: int) -> str:
    if target_s < _LONGEST_S:
        return f"set its {RETENTION} to {_LONGEST_S} (14 days)"
    return f"shorten the {RETENTION} of {case.source.queue!r}; 14 days are the most SQS keeps"


def _targets(case: Case) -> Iterator[tuple[str, QueueFacts]]:
    roles = list(case.roles())[1:]
    yield from roles
    redrive = case.source.redrive
    if redrive is not None and redrive.target_arn not in [each.resource for _, each in roles]:
        yield "redrive target", case.facts[redrive.target_arn]


def _keeps_their_age(source: QueueFacts, target: QueueFacts) -> bool:
    """Whether SQS moves messages there without starting their time anew.

    It does on standard queues. What the pump sends there itself is new in any case.
    """
    redrive = source.redrive
    is_native = redrive is not None and redrive.target_arn == target.resource
    return is_native and not QueueAddress.parse(source.queue).is_fifo


def _redrive(case: Case) -> Iterator[Finding]:
    queue, redrive = case.source.queue, case.source.redrive
    if redrive is not None and not case.facts[redrive.target_arn].exists:
        yield error(
            case.subject,
            f"queue {queue!r} redrives to {redrive.target_arn}, which does not exist",
            f"create that queue, or correct the RedrivePolicy; {_UNSEEN}",
        )
    limit, retries = _receive_limit(case), _max_retries(case.subscription.failure)
    if limit == 1:
        yield warning(
            case.subject,
            f"queue {queue!r} has a maxReceiveCount of 1: one lost response or one crash is "
            f"enough for SQS to dead-letter a message that was never tried",
            "raise maxReceiveCount to 5 or more",
        )
    elif limit is not None and (retries is None or limit <= retries):
        tries = "for ever" if retries is None else f"{retries} times"
        more = "" if retries is None else f"raise maxReceiveCount above {retries}, or "
        yield warning(
            case.subject,
            f"SQS dead-letters a message of {queue!r} after {limit} deliveries, but the "
            f"subscription retries {tries}: SQS comes first, and its dead letters have no reason",
            f"{more}lower max_retries",
        )


def _receive_limit(case: Case) -> int | None:
    """After how many deliveries SQS itself dead-letters, or will once the queue is made."""
    if case.source.attributes is None:
        return case.subscription.max_receive_count
    return None if case.source.redrive is None else case.source.redrive.max_receive_count


def _expiry(case: Case) -> Iterator[Finding]:
    """SQS deletes what has grown too old, whether it is being retried or not."""
    retention_s, failure = case.source.retention_s, case.subscription.failure
    if retention_s is None or isinstance(failure, DeadLetter):
        return
    if failure.max_retries is None:
        retries = "retries go on for ever"
    else:
        attempts = range(1, failure.max_retries + 1)
        needed_s = sum(failure.backoff.delay_s(attempt, 0.0) for attempt in attempts)
        if needed_s < retention_s:
            return
        retries = f"{failure.max_retries} retries may take {format_duration(needed_s)}"
    yield warning(
        case.subject,
        f"{retries}, and SQS deletes a message of {case.source.queue!r} "
        f"{format_duration(retention_s)} after it was sent: it would vanish without a dead letter",
        f"lower max_retries, shorten the backoff, or lengthen the queue's {RETENTION}",
    )


def _max_retries(failure: FailureStrategy) -> int | None:
    return 0 if isinstance(failure, DeadLetter) else failure.max_retries


def _visibility(case: Case) -> Iterator[Finding]:
    own_s = case.source.visibility_s
    if case.times is None or own_s is None or own_s >= case.times.max_s:
        return
    yield ok(
        case.subject,
        f"the visibility timeout of {case.source.queue!r} itself is {format_duration(own_s)}, and "
        f"handlers took up to {format_duration(case.times.max_s)}: the pump goes by its lease, but "
        f"any other consumer would have to ask for more",
    )


def _as_it_should_be(case: Case) -> Finding:
    kept = [
        f"{role} {facts.queue!r} keeps messages for {format_duration(facts.retention_s)}"
        for role, facts in case.roles()
        if facts.retention_s is not None
    ]
    return ok(case.subject, "; ".join(kept) or f"queue {case.source.queue!r} exists")


# Permissions: which IAM actions a subscription needs, and what trying them has shown. Pure.
#
# SQS has no dry run. Tried is only what can change nothing even on a server that checks nothing:
# a batch that deletes, or extends, a receipt handle that was never issued (the reply's `Failed`
# proves that the call itself was allowed), and a batch that sends no message (a denial is certain;
# that there was none proves nothing, because AWS does not say whether it looks at the permission
# or at the batch first). A receive cannot be tried: it would take a message.

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


_NEVER_ISSUED = {"Id": "doctor", "ReceiptHandle": "pump-doctor"}
_PROBES: Mapping[str, tuple[str, list[dict[str, Any]]]] = {
    DELETE: ("delete_message_batch", [_NEVER_ISSUED]),
    EXTEND: ("change_message_visibility_batch", [{**_NEVER_ISSUED, "VisibilityTimeout": 0}]),
    # Nothing is in it: not even a server that checks nothing has anything to send.
    SEND: ("send_message_batch", []),
}
"""Calls that can change nothing on any server, and show whether they are allowed."""


async def examine(
    transport: Transport,
    urls: QueueUrls,
    subscriptions: Sequence[Subscription],
    observed: Mapping[str, HandlerTimes],
) -> list[Finding]:
    """What an operator should know about these queues. Sends, receives and changes nothing.

    Raises `GatewayError` when SQS cannot be asked at all: out of reach, or no valid credentials.
    """
    if not subscriptions:
        await _knock(transport)
    examination = _Examination(transport, urls)
    facts = await examination.facts_of(subscriptions)
    return [
        finding
        for each in subscriptions
        for finding in findings_of(
            Case(subscription=each, facts=facts, times=observed.get(each.name))
        )
    ]


async def _knock(transport: Transport) -> None:
    try:
        await transport.call("sqs", "list_queues", {"MaxResults": 1})
    except AccessDenied:
        return  # An answer all the same.


class _Examination:
    """One round of questions; each queue is asked once, however many subscriptions name it."""

    def __init__(self, transport: Transport, urls: QueueUrls) -> None:
        self._transport = transport
        self._urls = urls

    async def facts_of(self, subscriptions: Sequence[Subscription]) -> dict[str, QueueFacts]:
        wanted: dict[str, set[str]] = {}
        for subscription in subscriptions:
            for queue, actions in _uses(subscription):
                wanted.setdefault(queue, set()).update(actions)
        facts = await self._ask_all(wanted)
        arns = {redrive.target_arn for each in facts.values() if (redrive := each.redrive)}
        known = {each.resource: each for each in facts.values() if each.attributes is not None}
        others = await self._ask_all(dict.fromkeys(arns - known.keys(), ()))
        return {**facts, **{arn: known[arn] for arn in arns & known.keys()}, **others}

    async def _ask_all(self, wanted: Mapping[str, Collection[str]]) -> dict[str, QueueFacts]:
        try:
            async with asyncio.TaskGroup() as group:
                asked = [
                    group.create_task(self._ask(queue, actions), name=f"examine {queue}")
                    for queue, actions in wanted.items()
                ]
        except ExceptionGroup as failures:
            # The others were cancelled, or failed of the same cause.
            raise failures.exceptions[0] from None
        return {task.result().queue: task.result() for task in asked}

    async def _ask(self, queue: str, actions: Collection[str]) -> QueueFacts:
        try:
            await self._urls.url_of(queue)
        except ConfigurationError as fault:
            return QueueFacts(queue=queue, trouble=fault)
        except QueueNotFound:
            is_ours = self._urls.owner_of(QueueAddress.parse(queue)) is None
            return QueueFacts(queue=queue, exists=False, is_ours=is_ours)
        except AccessDenied as fault:
            return QueueFacts(queue=queue, denied=frozenset({fault.operation}))
        return await self._look(queue, actions)

    async def _look(self, queue: str, actions: Collection[str]) -> QueueFacts:
        calls = QueueCalls(self._transport, self._urls, queue)
        attributes: dict[str, str] | None = None
        granted: set[str] = set()
        denied: set[str] = set()
        try:
            reply = await calls.call("get_queue_attributes", {"AttributeNames": ["All"]})
            attributes = dict(reply.get("Attributes", {}))
        except QueueNotFound:
            # It was given by its URL, which was not looked up.
            return QueueFacts(queue=queue, exists=False, is_ours=False)
        except AccessDenied as fault:
            denied.add(fault.operation)
        for action in sorted(actions):
            await _try(calls, action, granted, denied)
        return QueueFacts(
            queue=queue,
            attributes=attributes,
            granted=frozenset(granted),
            denied=frozenset(denied),
        )


async def _try(calls: QueueCalls, action: str, granted: set[str], denied: set[str]) -> None:
    """Enter an action where its probe shows that it belongs; in neither when it shows nothing."""
    operation, entries = _PROBES[action]
    try:
        await calls.call(operation, {"Entries": entries})
    except AccessDenied as fault:
        denied.add(fault.operation)
    except PumpError:
        return
    else:
        # An answer for each entry proves it; to a batch without any, a lax server says nothing.
        if entries:
            granted.add(action)


def _uses(subscription: Subscription) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield subscription.queue, (DELETE, EXTEND)
    for target in (subscription.dead_letter_queue, subscription.invalid_queue):
        if target is not None:
            yield target, (SEND,)


# Queue facts: what SQS lets us know about a queue, for `pump doctor` to judge. Pure.

RETENTION = "MessageRetentionPeriod"


@attrs.frozen(kw_only=True)
class QueueRedrive:
    """A queue's own dead-lettering, by SQS itself."""

    target_arn: str
    max_receive_count: int


@attrs.frozen(kw_only=True)
class QueueFacts:
    """One queue, as far as these credentials may see it."""

    queue: str
    """What the subscription, or a redrive policy, calls it."""
    exists: bool = True
    is_ours: bool = True
    """Whether the app would make it: it is of our account, and was given by its name."""
    trouble: ConfigurationError | None = None
    """Why it cannot even be asked for, when it cannot."""
    attributes: Mapping[str, str] | None = None
    """As SQS words them; None when they could not be read."""
    granted: frozenset[str] = frozenset()
    """The IAM actions that were tried and allowed."""
    denied: frozenset[str] = frozenset()
    """The IAM actions that were tried and refused."""

    @property
    def resource(self) -> str:
        """What a policy that grants something on it has to name."""
        return (self.attributes or {}).get("QueueArn", self.queue)

    @property
    def retention_s(self) -> int | None:
        """How long it keeps messages."""
        return self._seconds(RETENTION)

    @property
    def visibility_s(self) -> int | None:
        """How long it hides what is received, unless the receive says for how long."""
        return self._seconds("VisibilityTimeout")

    @property
    def redrive(self) -> QueueRedrive | None:
        """Where SQS itself moves what was received too often; None when it does not."""
        try:
            policy = json.loads((self.attributes or {})["RedrivePolicy"])
            # SQS gives the count back as it was written: as a number or as text.
            return QueueRedrive(
                target_arn=policy["deadLetterTargetArn"],
                max_receive_count=int(policy["maxReceiveCount"]),
            )
        except (KeyError, TypeError, ValueError):
            return None

    def _seconds(self, name: str) -> int | None:
        value = (self.attributes or {}).get(name)
        return None if value is None else int(value)

"""Diagnosis: what a person should know of a subscription's queues, from facts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from pump.durations import format_duration
from pump.errors import PumpError
from pump.findings import Finding, error, error_from, ok, warning
from pump.handler_times import HandlerTimes
from pump.strategy import DeadLetter, FailureStrategy
from pump.subscription import MakeChannels, QueueSpec, Subscription

from .address import FIFO_SUFFIX, QueueAddress
from .permissions import permission_findings
from .queue_facts import RETENTION, QueueFacts
from .queue_options import MAX_RETENTION, whole_seconds
from .queue_settings import QueueSettings

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
            f"enough for SQS to dead-letter a message that nobody has tried",
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

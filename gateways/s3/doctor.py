"""The doctor of a bucket and its queues: asks, changes nothing, and hands on the diagnosis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from pump.clock import format_duration
from pump.errors import AccessDenied, GatewayError, PumpError, QueueNotFound
from pump.findings import Finding, error, error_from, ok, warning
from pump.subscription import MakeChannels, QueueSpec, Subscription

from .._aws.errors import RequestRefused, SettingRefused, permission_for
from .._aws.sdk_transport import Transport
from .layout import QueueDescription
from .queue_options import Wanted, differences
from .queues import QueueCache, QueueEnvironment
from .settings import S3Settings
from .store.objects import List, Unknown

_VERSIONING = "get_bucket_versioning"
_LIFECYCLE = "get_bucket_lifecycle_configuration"


async def examine(
    environment: QueueEnvironment,
    queues: QueueCache,
    transport: Transport | None,
    subscriptions: Sequence[Subscription],
) -> list[Finding]:
    """The findings for an operator. Raises `GatewayError` when the bucket does not answer."""
    reply = await environment.store.perform(
        List(f"{environment.settings.root}queues/", max_count=1)
    )
    if isinstance(reply, Unknown):
        raise reply.error
    facts = BucketFacts()
    if transport is not None:
        facts = await _ask(transport, environment.settings.bucket)
    findings = list(bucket_findings(environment.settings, facts, _skew(environment)))
    for subscription in subscriptions:
        found = {spec.name: await _facts(queues, spec.name) for spec in subscription.queue_specs()}
        findings += queue_findings(subscription, found)
    return findings


async def _facts(queues: QueueCache, name: str) -> QueueDescription | PumpError | None:
    try:
        return await queues.facts_of(name)
    except QueueNotFound:
        return None
    except GatewayError as fault:
        return fault


async def _ask(transport: Transport, bucket: str) -> BucketFacts:
    facts = BucketFacts()
    for operation in (_VERSIONING, _LIFECYCLE):
        try:
            reply = await transport.call("s3", operation, {"Bucket": bucket}, target=bucket)
        except AccessDenied:
            denied = (*facts.denied, permission_for("s3", operation))
            facts = attrs.evolve(facts, denied=denied)
        except (RequestRefused, SettingRefused):
            # There are no rules, or the store knows nothing of the kind.
            continue
        else:
            facts = _with(facts, operation, reply)
    return facts


def _with(facts: BucketFacts, operation: str, reply: dict[str, Any]) -> BucketFacts:
    if operation == _VERSIONING:
        return attrs.evolve(facts, is_versioned=reply.get("Status") == "Enabled")
    return attrs.evolve(facts, rules=rules_of(reply.get("Rules") or ()))


def _skew(environment: QueueEnvironment) -> Skew | None:
    if not environment.time.is_known:
        return None
    wall_s = environment.clock.time_s()
    return Skew(
        least_s=environment.time.earliest_s() - wall_s, most_s=environment.time.latest_s() - wall_s
    )


# Diagnosis: findings about a bucket and its queues, from facts. Pure.

MAX_SKEW_S = 60.0
"""From here on a clock is worth a word; S3 refuses what is signed 15 minutes off."""


@attrs.frozen(kw_only=True)
class Skew:
    """How far the store's clock is ahead of this machine's: between these."""

    least_s: float
    most_s: float

    @property
    def size_s(self) -> float:
        """At least so far apart, whichever is ahead."""
        return max(self.least_s, -self.most_s, 0.0)


def bucket_findings(
    settings: S3Settings, facts: BucketFacts, skew: Skew | None
) -> Iterator[Finding]:
    """What is worth saying of the bucket, whatever is in it."""
    subject = f"bucket {settings.bucket}"
    if settings.probe:
        yield ok(subject, "conditional writes are honoured; that was tried when it was opened")
    else:
        yield warning(
            subject,
            "whether conditional writes are honoured was not tried (probe=False)",
            "set probe=True: on a store that ignores them messages are handled twice",
        )
    yield from _lifecycle(subject, settings, facts)
    yield from _versions(subject, settings, facts)
    for permission in facts.denied:
        yield ok(subject, f"not everything could be looked at: {permission} is denied")
    if skew is not None and skew.size_s > MAX_SKEW_S:
        yield warning(
            subject,
            f"this machine's clock is {format_duration(skew.size_s)} off the store's: leases go by "
            f"the store's, but S3 refuses what is signed 15 minutes off",
            "set the clock, by NTP for instance",
        )


def _lifecycle(subject: str, settings: S3Settings, facts: BucketFacts) -> Iterator[Finding]:
    ours = f"{settings.root}queues/"
    for rule in facts.rules:
        if not (rule.expires or rule.moves) or not rule.concerns(ours):
            continue
        does = "removes" if rule.expires else "moves"
        yield error(
            subject,
            f"lifecycle rule {rule.id!r} {does} objects below {rule.prefix!r}: messages that wait, "
            f"and what queues are made of, would be gone or out of reach",
            f"confine the rule to other prefixes than {ours!r}, or remove it",
        )


def _versions(subject: str, settings: S3Settings, facts: BucketFacts) -> Iterator[Finding]:
    ours = f"{settings.root}queues/"
    is_cleared = any(rule.clears_versions and rule.concerns(ours) for rule in facts.rules)
    if facts.is_versioned and not is_cleared:
        yield warning(
            subject,
            "versioning is on: every claim, renewal and ack leaves a version that is paid for, "
            "and removed messages stay",
            f"use a bucket without versioning, or a lifecycle rule on {ours!r} with "
            f"NoncurrentVersionExpiration of one day",
        )


def queue_findings(
    subscription: Subscription, queues: Mapping[str, QueueDescription | PumpError | None]
) -> list[Finding]:
    """What is worth saying of a subscription's queues, or that all is well."""
    subject = f"subscription {subscription.name}"
    found = [
        finding
        for spec in subscription.queue_specs()
        for finding in _queue(subject, subscription, spec, queues[spec.name])
    ]
    return found or [ok(subject, f"queue {subscription.queue!r} exists and fits")]


def _queue(
    subject: str,
    subscription: Subscription,
    spec: QueueSpec,
    facts: QueueDescription | PumpError | None,
) -> Iterator[Finding]:
    if isinstance(facts, PumpError):
        yield error_from(subject, facts)
    elif facts is not None:
        yield from _fit(subject, subscription, spec, facts)
    elif subscription.make_channels is MakeChannels.CREATE:
        yield ok(subject, f"queue {spec.name!r} will be made when the app opens")
    else:
        yield error(
            subject,
            f"queue {spec.name!r} does not exist, and make_channels is "
            f"{subscription.make_channels.value!r}",
            "create the queue, or set make_channels='create'",
        )


def _fit(
    subject: str, subscription: Subscription, spec: QueueSpec, facts: QueueDescription
) -> Iterator[Finding]:
    try:
        wanted = Wanted.from_spec(spec)
        asked = wanted.facts(wanted.layout or facts.layout)
    except PumpError as fault:
        yield error_from(subject, fault)
        return
    detail = "" if wanted.is_name_only else differences(facts, asked)
    if not detail:
        return
    said = f"queue {spec.name!r} is not as it was asked for: {detail}"
    if subscription.make_channels is MakeChannels.VALIDATE or asked.layout is not facts.layout:
        yield error(subject, said, "change what is asked for, or use a queue of another name")
    elif subscription.make_channels is MakeChannels.CREATE:
        yield warning(subject, said, "the app changes it when it opens; all who use it go by that")
    else:
        yield warning(subject, said, "change what is asked for, or set make_channels='create'")


# Bucket facts: what a bucket does with objects by itself. Pure.


@attrs.frozen(kw_only=True)
class Rule:
    """A lifecycle rule that is in force, as far as it matters here."""

    id: str
    prefix: str
    expires: bool = False
    """Removes objects that are in use."""
    moves: bool = False
    """Moves them where reading is dear, slow, or impossible."""
    clears_versions: bool = False
    """Removes versions that were replaced."""

    def concerns(self, prefix: str) -> bool:
        """Whether it is for an object below this prefix."""
        return prefix.startswith(self.prefix) or self.prefix.startswith(prefix)


@attrs.frozen(kw_only=True)
class BucketFacts:
    """What the bucket says of itself; None and nothing where it does not."""

    is_versioned: bool | None = None
    rules: tuple[Rule, ...] = ()
    denied: tuple[str, ...] = ()
    """Permissions that were lacking to ask."""


def rules_of(lines: Iterable[Mapping[str, Any]]) -> tuple[Rule, ...]:
    """The rules that are in force for our objects, which have no tags."""
    return tuple(
        rule
        for line in lines
        if line.get("Status") == "Enabled" and (rule := _rule(line)) is not None
    )


def _rule(line: Mapping[str, Any]) -> Rule | None:
    chosen = line.get("Filter") or {}
    both = chosen.get("And") or {}
    if "Tag" in chosen or both.get("Tags"):
        return None
    expiration = line.get("Expiration") or {}
    return Rule(
        id=str(line.get("ID", "")),
        prefix=str(both.get("Prefix") or chosen.get("Prefix") or line.get("Prefix") or ""),
        expires="Days" in expiration or "Date" in expiration,
        moves=bool(line.get("Transitions") or line.get("Transition")),
        clears_versions=bool(line.get("NoncurrentVersionExpiration")),
    )

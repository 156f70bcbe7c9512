"""Diagnosis: what a person should know of a bucket and its queues, from facts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from pump.durations import format_duration
from pump.errors import PumpError
from pump.findings import Finding, error, error_from, ok, warning
from pump.subscription import MakeChannels, QueueSpec, Subscription

from .bucket_facts import BucketFacts
from .layout import QueueFacts
from .queue_options import Wanted, differences
from .settings import S3Settings

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
    subscription: Subscription, queues: Mapping[str, QueueFacts | PumpError | None]
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
    facts: QueueFacts | PumpError | None,
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
    subject: str, subscription: Subscription, spec: QueueSpec, facts: QueueFacts
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

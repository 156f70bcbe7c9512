"""The doctor of a bucket and its queues: asks, changes nothing, and hands on the diagnosis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from pump.errors import AccessDenied, GatewayError, PumpError, QueueNotFound
from pump.findings import Finding
from pump.subscription import Subscription

from .._aws.codes import permission_for
from .._aws.errors import RequestRefused, SettingRefused
from .._aws.transport import Transport
from .bucket_facts import BucketFacts, rules_of
from .diagnosis import Skew, bucket_findings, queue_findings
from .layout import QueueFacts
from .queues import Bench, Queues
from .store.objects import List, Unknown

_VERSIONING = "get_bucket_versioning"
_LIFECYCLE = "get_bucket_lifecycle_configuration"


async def examine(
    bench: Bench, queues: Queues, transport: Transport | None, subscriptions: Sequence[Subscription]
) -> list[Finding]:
    """What a person should know. Raises `GatewayError` when the bucket does not answer."""
    reply = await bench.store.perform(List(f"{bench.settings.root}queues/", max_count=1))
    if isinstance(reply, Unknown):
        raise reply.error
    facts = BucketFacts()
    if transport is not None:
        facts = await _ask(transport, bench.settings.bucket)
    findings = list(bucket_findings(bench.settings, facts, _skew(bench)))
    for subscription in subscriptions:
        found = {spec.name: await _facts(queues, spec.name) for spec in subscription.queue_specs()}
        findings += queue_findings(subscription, found)
    return findings


async def _facts(queues: Queues, name: str) -> QueueFacts | PumpError | None:
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


def _skew(bench: Bench) -> Skew | None:
    if not bench.time.is_known:
        return None
    wall_s = bench.clock.time_s()
    return Skew(least_s=bench.time.earliest_s() - wall_s, most_s=bench.time.latest_s() - wall_s)

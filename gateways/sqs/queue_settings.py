"""Queue settings: what a `QueueSpec` means to SQS, and where an existing queue departs from it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from pump.capabilities import OrderingMode
from pump.errors import ConfigurationError, UnsupportedOperation
from pump.subscription import QueueSpec

from .address import FIFO_SUFFIX, QueueAddress
from .limits import MAX_VISIBILITY_S
from .queue_options import FIFO_ONLY, MAX_RETENTION, QueueOptions, whole_seconds
from .topics import TopicSubscription, is_own_statement

MAX_RECEIVE_COUNT = 1000

# What SQS takes for an attribute that it does not report.
DEFAULTS = {
    "ContentBasedDeduplication": "false",
    "DeduplicationScope": "queue",
    "DelaySeconds": "0",
    "FifoThroughputLimit": "perQueue",
    "SqsManagedSseEnabled": "false",
}


@attrs.frozen(kw_only=True)
class QueueSettings:
    """One queue as it was asked for. Only what was asked for is compared with what exists."""

    address: QueueAddress
    attributes: Mapping[str, str]
    """What the queue must have, also when it exists."""
    initial: Mapping[str, str]
    """What a new queue gets besides; an existing one may have it otherwise."""
    tags: Mapping[str, str]
    max_receive_count: int | None = None
    dead_letter: QueueAddress | None = None
    topic: TopicSubscription | None = None

    @classmethod
    def from_spec(cls, spec: QueueSpec) -> QueueSettings:
        """Translate a spec; `ConfigurationError` names the field that cannot work.

        Raises `UnsupportedOperation` for newest-first, which SQS does not have.
        """
        address = QueueAddress.parse(spec.name)
        options = QueueOptions.parse(spec.options)
        _check_order(spec, address)
        _check_fifo_options(options, address)
        has_redrive = spec.max_receive_count is not None
        return cls(
            address=address,
            attributes=dict(_attributes(options)),
            initial=dict(_initial(spec, address)),
            tags=dict(options.tags or {}),
            max_receive_count=spec.max_receive_count,
            dead_letter=_dead_letter(spec, address) if has_redrive else None,
            topic=_topic(options, address),
        )

    @property
    def has_demands(self) -> bool:
        """Whether more was asked for than that the queue exists."""
        return bool(self.attributes or self.tags or self.dead_letter or self.topic)

    def creation(self, *, dead_letter_arn: str | None) -> dict[str, str]:
        """The attributes of a new queue."""
        asked = {**self.initial, **self.attributes}
        if dead_letter_arn is not None:
            policy = {
                "deadLetterTargetArn": dead_letter_arn,
                "maxReceiveCount": self.max_receive_count,
            }
            asked["RedrivePolicy"] = json.dumps(policy)
        return asked

    def differences(
        self,
        attributes: Mapping[str, str],
        *,
        dead_letter_arn: str | None,
        tags: Mapping[str, str],
    ) -> list[str]:
        """Say in words where an existing queue, described by SQS, is not what was asked for.

        A redrive policy is compared when one was asked for. The visibility timeout never is:
        a consumer sends its own with each receive.
        """
        return [
            *_attribute_differences(self.attributes, attributes),
            *self._redrive_differences(attributes.get("RedrivePolicy"), dead_letter_arn),
            *_tag_differences(self.tags, tags),
        ]

    def _redrive_differences(self, policy: str | None, dead_letter_arn: str | None) -> list[str]:
        if self.dead_letter is None:
            return []
        if policy is None:
            return [f"it has no redrive policy, asked for {self._redrive(dead_letter_arn)}"]
        actual = json.loads(policy)
        # SQS gives the count back as it was written: as a number or as text.
        count, target = int(actual["maxReceiveCount"]), actual["deadLetterTargetArn"]
        if (count, target) == (self.max_receive_count, dead_letter_arn):
            return []
        return [
            f"it redrives after {count} to {target}, asked for {self._redrive(dead_letter_arn)}"
        ]

    def _redrive(self, dead_letter_arn: str | None) -> str:
        return f"{self.max_receive_count} to {dead_letter_arn}"


def is_bare(spec: QueueSpec) -> bool:
    """Whether a spec only asks that the queue exists, as that of a rejection target does."""
    return spec == QueueSpec(name=spec.name)


def _check_order(spec: QueueSpec, address: QueueAddress) -> None:
    if spec.ordering is OrderingMode.LIFO:
        raise UnsupportedOperation(
            "sqs", "ordering=lifo", "SQS delivers oldest first; use the memory, local or s3 gateway"
        )
    if spec.ordering_guarantee and not address.is_fifo:
        raise ConfigurationError(
            "QueueSpec.ordering_guarantee",
            True,
            f"a standard queue keeps no order; name the queue {address.name}{FIFO_SUFFIX}",
        )


def _check_fifo_options(options: QueueOptions, address: QueueAddress) -> None:
    for key in FIFO_ONLY:
        if getattr(options, key) is not None and not address.is_fifo:
            raise ConfigurationError(
                f"QueueSpec.options[{key!r}]",
                getattr(options, key),
                f"only FIFO queues have this; name the queue {address.name}{FIFO_SUFFIX}",
            )


def _attributes(options: QueueOptions) -> Iterator[tuple[str, str]]:
    yield from (options.attributes or {}).items()
    if options.fifo_throughput is not None:
        is_high = options.fifo_throughput == "group"
        yield "DeduplicationScope", "messageGroup" if is_high else "queue"
        yield "FifoThroughputLimit", "perMessageGroupId" if is_high else "perQueue"
    if options.content_based_deduplication is not None:
        yield "ContentBasedDeduplication", _flag(options.content_based_deduplication)
    if options.retention is not None:
        yield "MessageRetentionPeriod", str(whole_seconds(options.retention))
    if options.delay is not None:
        yield "DelaySeconds", str(whole_seconds(options.delay))
    if options.max_message_bytes is not None:
        yield "MaximumMessageSize", str(options.max_message_bytes)
    if options.kms_key_id is not None:
        yield "KmsMasterKeyId", options.kms_key_id
    if options.sse is not None:
        yield "SqsManagedSseEnabled", _flag(options.sse)


def _initial(spec: QueueSpec, address: QueueAddress) -> Iterator[tuple[str, str]]:
    if address.is_fifo:
        yield "FifoQueue", "true"
    if spec.lease is not None:
        yield "VisibilityTimeout", str(_visibility_s(spec))
    if is_bare(spec):
        # Dead letters wait for people, who have weekends.
        yield "MessageRetentionPeriod", str(whole_seconds(MAX_RETENTION))


def _visibility_s(spec: QueueSpec) -> int:
    assert spec.lease is not None
    seconds = whole_seconds(spec.lease)
    if not 0 <= seconds <= MAX_VISIBILITY_S:
        raise ConfigurationError("QueueSpec.lease", spec.lease, "SQS leases up to 12 hours")
    return seconds


def _dead_letter(spec: QueueSpec, address: QueueAddress) -> QueueAddress:
    limit = spec.max_receive_count
    if limit is None or not 1 <= limit <= MAX_RECEIVE_COUNT:
        raise ConfigurationError(
            "QueueSpec.max_receive_count", limit, f"use a number from 1 to {MAX_RECEIVE_COUNT}"
        )
    if not spec.dead_letter_queue or spec.dead_letter_queue == spec.name:
        raise _bad_target(spec, "max_receive_count needs another queue to move messages to")
    target = QueueAddress.parse(spec.dead_letter_queue)
    if target.is_fifo != address.is_fifo:
        kind = "FIFO" if address.is_fifo else "standard"
        raise _bad_target(spec, f"a {kind} queue's messages can only move to a {kind} queue")
    return target


def _bad_target(spec: QueueSpec, remedy: str) -> ConfigurationError:
    return ConfigurationError("QueueSpec.dead_letter_queue", spec.dead_letter_queue, remedy)


def _topic(options: QueueOptions, address: QueueAddress) -> TopicSubscription | None:
    if options.topic is None:
        return None
    topic = TopicSubscription.parse(
        options.topic,
        filter_policy=options.filter_policy,
        filter_scope=options.filter_scope,
        is_raw=options.raw_delivery is not False,
    )
    if address.is_fifo and not topic.is_fifo:
        raise ConfigurationError(
            "QueueSpec.options['topic']",
            options.topic,
            f"only a FIFO topic delivers to a FIFO queue; its name ends in {FIFO_SUFFIX}",
        )
    return topic


def _attribute_differences(asked: Mapping[str, str], actual: Mapping[str, str]) -> Iterator[str]:
    for name, value in asked.items():
        found = actual.get(name, DEFAULTS.get(name))
        if found is None:
            yield f"{name} is not set, asked for {value}"
        elif _meaning(name, found) != _meaning(name, value):
            yield f"{name} is {found}, asked for {value}"


def _tag_differences(asked: Mapping[str, str], actual: Mapping[str, str]) -> Iterator[str]:
    for name, value in asked.items():
        if name not in actual:
            yield f"tag {name!r} is not set, asked for {value!r}"
        elif actual[name] != value:
            yield f"tag {name!r} is {actual[name]!r}, asked for {value!r}"


def _meaning(name: str, value: str) -> Any:
    # Numbers, flags and policies are all JSON, which can be written in more than one way.
    try:
        meaning = json.loads(value)
    except ValueError:
        return value
    if name == "Policy" and isinstance(meaning, dict):
        return _without_own_statements(meaning)
    return meaning


def _without_own_statements(policy: Mapping[str, Any]) -> dict[str, Any]:
    statements = policy.get("Statement", [])
    if isinstance(statements, dict):
        statements = [statements]
    return {**policy, "Statement": [each for each in statements if not is_own_statement(each)]}


def _flag(is_on: bool) -> str:
    return "true" if is_on else "false"

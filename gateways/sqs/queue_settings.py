"""Queue settings: what a `QueueSpec` means to SQS, and where an existing queue departs from it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Literal

import attrs

from pump.capabilities import OrderingMode
from pump.errors import ConfigurationError, UnsupportedOperation
from pump.subscription import QueueSpec

from .calls import FIFO_SUFFIX, MAX_BYTES, MAX_DELAY_S, MAX_VISIBILITY_S, QueueAddress
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
        # Dead letters wait for an operator, also over weekends.
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


# Queue options: everything `Subscription.options` and `QueueSpec.options` may say on SQS.

MIN_RETENTION = timedelta(minutes=1)
MAX_RETENTION = timedelta(days=14)
MIN_MESSAGE_BYTES = 1024

FIFO_ONLY = ("fifo_throughput", "content_based_deduplication")
TOPIC_ONLY = ("filter_policy", "filter_scope", "raw_delivery")
# One home for each setting: what has an option or a field is not taken as a raw attribute.
OWNED_ATTRIBUTES = {
    "FifoQueue": "a queue name that ends in .fifo",
    "VisibilityTimeout": "Subscription.lease",
    "RedrivePolicy": "max_receive_count and dead_letter_queue",
    "DeduplicationScope": "the option 'fifo_throughput'",
    "FifoThroughputLimit": "the option 'fifo_throughput'",
    "ContentBasedDeduplication": "the option 'content_based_deduplication'",
    "MessageRetentionPeriod": "the option 'retention'",
    "DelaySeconds": "the option 'delay'",
    "MaximumMessageSize": "the option 'max_message_bytes'",
    "KmsMasterKeyId": "the option 'kms_key_id'",
    "SqsManagedSseEnabled": "the option 'sse'",
}


@attrs.frozen(kw_only=True)
class QueueOptions:
    """The vocabulary, one field a key. What is None is not asked for: a new queue gets the
    default of SQS, an existing one is not compared.
    """

    fifo_throughput: Literal["queue", "group"] | None = None
    """`"group"` is high throughput: limits and de-duplication count per message group."""
    content_based_deduplication: bool | None = None
    """Let SQS de-duplicate by the body what foreign producers send without an id."""
    retention: timedelta | None = None
    """How long a message stays: 1 minute to 14 days (SQS: 4 days)."""
    delay: timedelta | None = None
    """Hide every message this long after its send, up to 15 minutes; the only delay FIFO has."""
    max_message_bytes: int | None = None
    """Refuse larger messages: 1,024 to 1,048,576 bytes."""
    kms_key_id: str | None = None
    """Encrypt at rest with this KMS key: id, ARN or alias."""
    sse: bool | None = None
    """Encrypt at rest with a key of SQS's own."""
    tags: Mapping[str, str] | None = None
    """Cost allocation tags; others that the queue has are left alone."""
    attributes: Mapping[str, str] | None = None
    """Any other SQS queue attribute, passed as it is."""
    topic: str | None = None
    """Subscribe the queue to this SNS topic, by name or ARN."""
    filter_policy: Mapping[str, Any] | None = None
    """What of the topic's messages to take; an empty mapping removes a filter there is."""
    filter_scope: Literal["attributes", "body"] | None = None
    """What the filter looks at (SNS: attributes); `"body"` for messages of ours, whose headers
    are packed in one attribute."""
    raw_delivery: bool | None = None
    """Deliver the topic's messages without SNS's envelope (True unless said otherwise)."""
    unwrap_sns: bool | None = None
    """Take SNS's envelope off where there is one (True unless said otherwise); for consumers."""

    def __attrs_post_init__(self) -> None:
        self._check_values()
        self._check_attributes()
        self._check_companions()

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> QueueOptions:
        """Understand a mapping; `ConfigurationError` names the key that cannot work."""
        known = [field.name for field in attrs.fields(cls)]
        if unknown := sorted(map(str, options.keys() - set(known))):
            raise ConfigurationError(
                "QueueSpec.options", unknown, f"the sqs gateway knows only {', '.join(known)}"
            )
        return cls(**options)

    def _check_values(self) -> None:
        for key, (is_right, remedy) in _RULES.items():
            value = getattr(self, key)
            if value is not None and not is_right(value):
                raise _refusal(key, value, remedy)

    def _check_attributes(self) -> None:
        for name, home in OWNED_ATTRIBUTES.items():
            if name in (self.attributes or {}):
                raise _refusal("attributes", name, f"say it with {home}")

    def _check_companions(self) -> None:
        if self.kms_key_id and self.sse:
            raise _refusal("sse", True, "a queue has one key: use kms_key_id or sse")
        for key in TOPIC_ONLY:
            if self.topic is None and getattr(self, key) is not None:
                raise _refusal(key, getattr(self, key), "name the topic it is meant for")


def whole_seconds(duration: timedelta) -> int:
    """In SQS's unit, and never shorter than was asked for."""
    return math.ceil(duration.total_seconds())


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_policy(value: object) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return isinstance(value, Mapping)


def _is_text_to_text(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(part, str) for pair in value.items() for part in pair
    )


def _is_scope(value: object) -> bool:
    return value in ("attributes", "body")


def _is_throughput(value: object) -> bool:
    return value in ("queue", "group")


def _is_retention(value: object) -> bool:
    return isinstance(value, timedelta) and MIN_RETENTION <= value <= MAX_RETENTION


def _is_delay(value: object) -> bool:
    return isinstance(value, timedelta) and timedelta(0) <= value <= timedelta(seconds=MAX_DELAY_S)


def _is_size(value: object) -> bool:
    return type(value) is int and MIN_MESSAGE_BYTES <= value <= MAX_BYTES


_FLAG = (_is_bool, "use True or False")
_NAME = (_is_name, "name it in text")
_TEXTS = (_is_text_to_text, "give a mapping of text to text")
_RULES: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "fifo_throughput": (_is_throughput, "use 'queue' or 'group'"),
    "content_based_deduplication": _FLAG,
    "retention": (_is_retention, "use a timedelta from 1 minute to 14 days"),
    "delay": (_is_delay, "use a timedelta of up to 15 minutes"),
    "max_message_bytes": (
        _is_size,
        f"use a whole number from {MIN_MESSAGE_BYTES} to {MAX_BYTES}",
    ),
    "kms_key_id": _NAME,
    "sse": _FLAG,
    "tags": _TEXTS,
    "attributes": _TEXTS,
    "topic": _NAME,
    "filter_policy": (_is_policy, "give a mapping that is valid JSON"),
    "filter_scope": (_is_scope, "use 'attributes' or 'body'"),
    "raw_delivery": _FLAG,
    "unwrap_sns": _FLAG,
}


def _refusal(key: str, value: object, remedy: str) -> ConfigurationError:
    return ConfigurationError(f"QueueSpec.options[{key!r}]", value, remedy)

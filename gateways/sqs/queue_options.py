"""Queue options: everything `Subscription.options` and `QueueSpec.options` may say on SQS."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Literal

import attrs

from pump.errors import ConfigurationError

from .limits import MAX_BYTES, MAX_DELAY_S

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

"""Queue attributes as clients write and read them: strings in, `QueueSettings` out, and back. Pure.

What needs other queues (does the dead-letter queue exist, does it allow this source) is decided in
`queues.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from ..errors import (
    SqsError,
    conflicting_encryption,
    invalid_attribute_name,
    invalid_attribute_value,
)
from ..model import Counts, QueueAddress
from ..settings import MAX_MESSAGE_BYTES, QueueSettings
from .policies import check_policy
from .redrive import parse_redrive, parse_redrive_allow, render_redrive, render_redrive_allow

_NUMBERS: Final = {
    "VisibilityTimeout": ("visibility_timeout_s", 0, 43_200),
    "DelaySeconds": ("delay_s", 0, 900),
    "MessageRetentionPeriod": ("retention_s", 60, 1_209_600),
    "MaximumMessageSize": ("max_message_bytes", 1_024, MAX_MESSAGE_BYTES),
    "ReceiveMessageWaitTimeSeconds": ("wait_s", 0, 20),
    "KmsDataKeyReusePeriodSeconds": ("kms_reuse_s", 60, 86_400),
}
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_SCOPES: Final = {"queue": False, "messageGroup": True}
_THROUGHPUTS: Final = {"perQueue": False, "perMessageGroupId": True}

Changes = dict[str, Any]


def parse_attributes(
    address: QueueAddress, raw: Mapping[str, str], *, before: QueueSettings | None = None
) -> QueueSettings:
    """The settings after `raw` was applied to those `before`, or to a new queue's.

    An empty value takes away what can be taken away. Times and tags are not attributes to set:
    they stay as they were.
    """
    settings = QueueSettings(address=address) if before is None else before
    changes: Changes = {}
    for name, value in raw.items():
        # Public test suites send "VisibilityTimeout " with a space, and expect it to be taken.
        _PARSERS.get(name.strip(), _refuse_unknown)(settings, name.strip(), value, changes)
    _settle_encryption(settings, changes)
    after = attrs.evolve(settings, **changes)
    if after.is_high_throughput and not after.deduplicates_per_group:
        raise invalid_attribute_value(
            "FifoThroughputLimit",
            "The perMessageGroupId value is allowed only when the value for DeduplicationScope "
            "is messageGroup.",
        )
    return after


def render_attributes(
    settings: QueueSettings, names: Sequence[str], counts: Counts
) -> dict[str, str]:
    """What GetQueueAttributes answers; SqsError for a name SQS does not know."""
    for name in names:
        if name != "All" and name not in _READERS:
            raise invalid_attribute_name(name)
    wanted = _READERS if "All" in names else dict.fromkeys(names)
    shown = ((name, _READERS[name](settings, counts)) for name in wanted)
    return {name: value for name, value in shown if value is not None}


def differing_attribute(
    before: QueueSettings, after: QueueSettings, names: Sequence[str]
) -> str | None:
    """The first of `names` in which two settings differ, as CreateQueue compares them."""
    for name in names:
        if _compared(before, name.strip()) != _compared(after, name.strip()):
            return name
    return None


def _compared(settings: QueueSettings, name: str) -> object:
    # The same policy may be written in several ways.
    if name == "RedrivePolicy":
        return settings.redrive
    if name == "RedriveAllowPolicy":
        return settings.redrive_allow
    return _READERS[name](settings, Counts(visible=0, in_flight=0, delayed=0))


# Writing


def _parse_number(settings: QueueSettings, name: str, value: str, changes: Changes) -> None:
    field, low, high = _NUMBERS[name]
    # `int` would also take 1_0, digits of every script, and spaces.
    if not _NUMBER.fullmatch(value) or not low <= int(value) <= high:
        raise invalid_attribute_value(name)
    changes[field] = int(value)


def _parse_flag(name: str, value: str) -> bool:
    lowered = value.lower()
    if lowered not in {"true", "false"}:
        raise invalid_attribute_value(name)
    return lowered == "true"


def _parse_fifo(settings: QueueSettings, name: str, value: str, changes: Changes) -> None:
    if not settings.address.is_fifo:
        raise invalid_attribute_name(name)
    if not _parse_flag(name, value):
        raise invalid_attribute_value(name, "Modifying queue type is not supported.")


def _parse_content_based(settings: QueueSettings, name: str, value: str, changes: Changes) -> None:
    if not settings.address.is_fifo:
        raise invalid_attribute_name(name)
    changes["content_based_deduplication"] = _parse_flag(name, value)


def _parse_scope(settings: QueueSettings, name: str, value: str, changes: Changes) -> None:
    changes["deduplicates_per_group"] = _choose(settings, name, value, _SCOPES)


def _parse_throughput(settings: QueueSettings, name: str, value: str, changes: Changes) -> None:
    changes["is_high_throughput"] = _choose(settings, name, value, _THROUGHPUTS)


def _choose(settings: QueueSettings, name: str, value: str, choices: Mapping[str, bool]) -> bool:
    if not settings.address.is_fifo:
        raise SqsError(
            "InvalidAttributeName",
            f"You can specify the {name} only when FifoQueue is set to true.",
        )
    if value not in choices:
        raise invalid_attribute_value(name)
    return choices[value]


def _parse_redrive(settings: QueueSettings, name: str, value: str, changes: Changes) -> None:
    changes["redrive"] = parse_redrive(settings.address, value)


def _parse_redrive_allow(settings: QueueSettings, name: str, value: str, changes: Changes) -> None:
    changes["redrive_allow"] = parse_redrive_allow(value)


def _parse_policy(settings: QueueSettings, name: str, value: str, changes: Changes) -> None:
    if value:
        check_policy(value)
    changes["policy"] = value or None


def _parse_key(settings: QueueSettings, name: str, value: str, changes: Changes) -> None:
    changes["kms_key"] = value or None


def _parse_managed(settings: QueueSettings, name: str, value: str, changes: Changes) -> None:
    changes["has_managed_encryption"] = _parse_flag(name, value)


def _settle_encryption(settings: QueueSettings, changes: Changes) -> None:
    """A queue has at most one kind of encryption; the one asked for last wins."""
    key = changes.get("kms_key")
    if key and changes.get("has_managed_encryption"):
        raise conflicting_encryption()
    if key:
        changes["has_managed_encryption"] = False
    elif changes.get("has_managed_encryption"):
        changes["kms_key"] = None


def _refuse_unknown(settings: QueueSettings, name: str, value: str, changes: Changes) -> None:
    raise invalid_attribute_name(name)


_PARSERS: Final[Mapping[str, Callable[[QueueSettings, str, str, Changes], None]]] = {
    **dict.fromkeys(_NUMBERS, _parse_number),
    "FifoQueue": _parse_fifo,
    "ContentBasedDeduplication": _parse_content_based,
    "DeduplicationScope": _parse_scope,
    "FifoThroughputLimit": _parse_throughput,
    "RedrivePolicy": _parse_redrive,
    "RedriveAllowPolicy": _parse_redrive_allow,
    "Policy": _parse_policy,
    "KmsMasterKeyId": _parse_key,
    "SqsManagedSseEnabled": _parse_managed,
}


# Reading


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _named(choices: Mapping[str, bool], value: bool) -> str:
    return next(name for name, meaning in choices.items() if meaning is value)


_READERS: Final[Mapping[str, Callable[[QueueSettings, Counts], str | None]]] = {
    "QueueArn": lambda settings, counts: settings.address.arn,
    "ApproximateNumberOfMessages": lambda settings, counts: str(counts.visible),
    "ApproximateNumberOfMessagesNotVisible": lambda settings, counts: str(counts.in_flight),
    "ApproximateNumberOfMessagesDelayed": lambda settings, counts: str(counts.delayed),
    "CreatedTimestamp": lambda settings, counts: str(settings.created_at_s),
    "LastModifiedTimestamp": lambda settings, counts: str(settings.modified_at_s),
    "VisibilityTimeout": lambda settings, counts: str(settings.visibility_timeout_s),
    "MaximumMessageSize": lambda settings, counts: str(settings.max_message_bytes),
    "MessageRetentionPeriod": lambda settings, counts: str(settings.retention_s),
    "DelaySeconds": lambda settings, counts: str(settings.delay_s),
    "ReceiveMessageWaitTimeSeconds": lambda settings, counts: str(settings.wait_s),
    "Policy": lambda settings, counts: settings.policy,
    "RedrivePolicy": lambda settings, counts: (
        None if settings.redrive is None else render_redrive(settings.redrive)
    ),
    "RedriveAllowPolicy": lambda settings, counts: (
        None if settings.redrive_allow is None else render_redrive_allow(settings.redrive_allow)
    ),
    "KmsMasterKeyId": lambda settings, counts: settings.kms_key,
    "KmsDataKeyReusePeriodSeconds": lambda settings, counts: (
        None if settings.kms_key is None else str(settings.kms_reuse_s)
    ),
    "SqsManagedSseEnabled": lambda settings, counts: _flag(settings.has_managed_encryption),
    "FifoQueue": lambda settings, counts: "true" if settings.address.is_fifo else None,
    "ContentBasedDeduplication": lambda settings, counts: (
        _flag(settings.content_based_deduplication) if settings.address.is_fifo else None
    ),
    "DeduplicationScope": lambda settings, counts: (
        _named(_SCOPES, settings.deduplicates_per_group) if settings.address.is_fifo else None
    ),
    "FifoThroughputLimit": lambda settings, counts: (
        _named(_THROUGHPUTS, settings.is_high_throughput) if settings.address.is_fifo else None
    ),
}

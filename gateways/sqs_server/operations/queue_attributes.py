"""Queue attributes as clients write and read them: strings to `SqsQueueSettings` and back. Pure.

What needs other queues (does the dead-letter queue exist, does it allow this source) is decided in
`queues.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from ..errors import (
    SqsError,
    conflicting_encryption,
    invalid_attribute_name,
    invalid_attribute_value,
    invalid_value,
)
from ..model import (
    MAX_MESSAGE_BYTES,
    QueueCounts,
    QueueId,
    RedriveAllowPolicy,
    RedrivePermission,
    RedrivePolicy,
    SqsQueueSettings,
)
from .permissions import check_policy

# RedrivePolicy and RedriveAllowPolicy: JSON documents inside attributes. Pure.

MAX_RECEIVE_COUNT: Final = 1_000
MAX_SOURCES: Final = 10
_REDRIVE_KEYS: Final = ("maxReceiveCount", "deadLetterTargetArn")  # in the order AWS looks
_ALLOW_KEYS: Final = frozenset({"redrivePermission", "sourceQueueArns"})
_ARN: Final = re.compile(r"arn(:[^:]+){4}:.+")
# Python converts no more than 4,300 digits.
_FEW_DIGITS: Final = re.compile(r"[0-9]{1,9}")


def parse_redrive(source: QueueId, raw: str) -> RedrivePolicy | None:
    """What a client set as RedrivePolicy; None when it takes the policy away."""
    if not raw:
        return None
    document = _document(raw)
    if document is None:
        raise redrive_refusal(raw, "Redrive policy is not a valid JSON map.")
    for key in _REDRIVE_KEYS:
        if key not in document:
            raise redrive_refusal(
                raw, f"Redrive policy does not contain mandatory attribute: {key}."
            )
    count = document["maxReceiveCount"]
    max_receive_count = _receive_count(raw, count)
    target = _target(source, raw, document["deadLetterTargetArn"])
    if len(document) > len(_REDRIVE_KEYS):
        raise redrive_refusal(
            raw, f"Only following attributes are supported: [{', '.join(_REDRIVE_KEYS)}]."
        )
    return RedrivePolicy(
        target=target,
        max_receive_count=max_receive_count,
        # Shown as a number, whatever it came as.
        text=raw if count == max_receive_count else None,
    )


def render_redrive(policy: RedrivePolicy) -> str:
    """As GetQueueAttributes shows it: as it was set."""
    if policy.text is not None:
        return policy.text
    return _compact(
        {"deadLetterTargetArn": policy.target.arn, "maxReceiveCount": policy.max_receive_count}
    )


def parse_redrive_allow(raw: str) -> RedriveAllowPolicy | None:
    """What a client set as RedriveAllowPolicy; None when it takes the policy away."""
    if not raw:
        return None
    document = _document(raw) or {}
    sources = document.get("sourceQueueArns")
    try:
        permission = RedrivePermission(document.get("redrivePermission"))
    except ValueError:
        raise _unsupported_format() from None
    if not _ALLOW_KEYS.issuperset(document) or not _are_arns([] if sources is None else sources):
        raise _unsupported_format()
    if permission is not RedrivePermission.BY_QUEUE:
        if sources:
            raise _allow_refusal(
                raw,
                "To specify one or more source queue ARNs, "
                "you must set redrivePermission to byQueue.",
            )
        return RedriveAllowPolicy(permission=permission, text=raw)
    if not sources:
        raise _allow_refusal(
            raw,
            "When you specify the byQueue permission type, "
            "you must also specify one or more sourceQueueArns values.",
        )
    if len(sources) > MAX_SOURCES:
        raise _allow_refusal(
            raw, f"The maximum number of source queue ARNs you can specify is {MAX_SOURCES}."
        )
    return RedriveAllowPolicy(permission=permission, sources=tuple(sources), text=raw)


def render_redrive_allow(policy: RedriveAllowPolicy) -> str:
    """As GetQueueAttributes shows it: as it was set."""
    if policy.text is not None:
        return policy.text
    document: dict[str, Any] = {"redrivePermission": policy.permission.value}
    if policy.permission is RedrivePermission.BY_QUEUE:
        document["sourceQueueArns"] = list(policy.sources)
    return _compact(document)


def redrive_refusal(raw: str, reason: str) -> SqsError:
    """AWS's refusal of a RedrivePolicy, with the text that was sent."""
    return invalid_value("RedrivePolicy", raw, reason)


def _target(source: QueueId, raw: str, arn: object) -> QueueId:
    target = QueueId.from_arn(arn) if isinstance(arn, str) else None
    if target is None:
        if isinstance(arn, str) and _ARN.fullmatch(arn) is not None:
            raise redrive_refusal(
                raw, "Only SQS queues are valid resources for deadLetterTargetArn."
            )
        raise redrive_refusal(raw, "Invalid value for deadLetterTargetArn.")
    if (target.account, target.region) != (source.account, source.region):
        raise redrive_refusal(raw, "Dead letter target owner should be same as the source.")
    if target.is_fifo != source.is_fifo:
        # The second full stop is AWS's.
        raise redrive_refusal(raw, "Dead-letter queue must be same type of queue as the source..")
    return target


def _receive_count(raw: str, value: object) -> int:
    # Consoles and templates send it as text as often as they send a number.
    if isinstance(value, str) and _FEW_DIGITS.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_RECEIVE_COUNT:
        raise redrive_refusal(
            raw,
            f"Invalid value for maxReceiveCount: {value}, "
            f"valid values are from 1 to {MAX_RECEIVE_COUNT} both inclusive.",
        )
    return value


def _are_arns(sources: object) -> bool:
    return isinstance(sources, list) and all(
        isinstance(arn, str) and QueueId.from_arn(arn) is not None for arn in sources
    )


def _unsupported_format() -> SqsError:
    return invalid_attribute_value(
        "RedriveAllowPolicy",
        "Amazon SQS can't create the redrive allow policy, as it\u2019s in an unsupported format.",
    )


def _allow_refusal(raw: str, reason: str) -> SqsError:
    return invalid_value(
        "RedriveAllowPolicy", raw, f"Amazon SQS can't create the redrive allow policy. {reason}"
    )


def _compact(document: Mapping[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"))


def _document(raw: str) -> Mapping[str, Any] | None:
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):  # nested deeper than anything a policy needs
        return None
    return document if isinstance(document, dict) else None


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
    address: QueueId, raw: Mapping[str, str], *, before: SqsQueueSettings | None = None
) -> SqsQueueSettings:
    """The settings after `raw` was applied to those `before`, or to a new queue's.

    An empty value takes away what can be taken away. Times and tags are not attributes to set:
    they stay as they were.
    """
    settings = SqsQueueSettings(address=address) if before is None else before
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
    settings: SqsQueueSettings, names: Sequence[str], counts: QueueCounts
) -> dict[str, str]:
    """What GetQueueAttributes answers; SqsError for a name SQS does not know."""
    for name in names:
        if name != "All" and name not in _READERS:
            raise invalid_attribute_name(name)
    wanted = _READERS if "All" in names else dict.fromkeys(names)
    shown = ((name, _READERS[name](settings, counts)) for name in wanted)
    return {name: value for name, value in shown if value is not None}


def differing_attribute(
    before: SqsQueueSettings, after: SqsQueueSettings, names: Sequence[str]
) -> str | None:
    """The first of `names` in which two settings differ, as CreateQueue compares them."""
    for name in names:
        if _compared(before, name.strip()) != _compared(after, name.strip()):
            return name
    return None


def _compared(settings: SqsQueueSettings, name: str) -> object:
    # The same policy may be written in several ways.
    if name == "RedrivePolicy":
        return settings.redrive
    if name == "RedriveAllowPolicy":
        return settings.redrive_allow
    return _READERS[name](settings, QueueCounts(visible=0, in_flight=0, delayed=0))


# Writing


def _parse_number(settings: SqsQueueSettings, name: str, value: str, changes: Changes) -> None:
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


def _parse_fifo(settings: SqsQueueSettings, name: str, value: str, changes: Changes) -> None:
    if not settings.address.is_fifo:
        raise invalid_attribute_name(name)
    if not _parse_flag(name, value):
        raise invalid_attribute_value(name, "Modifying queue type is not supported.")


def _parse_content_based(
    settings: SqsQueueSettings, name: str, value: str, changes: Changes
) -> None:
    if not settings.address.is_fifo:
        raise invalid_attribute_name(name)
    changes["content_based_deduplication"] = _parse_flag(name, value)


def _parse_scope(settings: SqsQueueSettings, name: str, value: str, changes: Changes) -> None:
    changes["deduplicates_per_group"] = _choose(settings, name, value, _SCOPES)


def _parse_throughput(settings: SqsQueueSettings, name: str, value: str, changes: Changes) -> None:
    changes["is_high_throughput"] = _choose(settings, name, value, _THROUGHPUTS)


def _choose(settings: SqsQueueSettings, name: str, value: str, choices: Mapping[str, bool]) -> bool:
    if not settings.address.is_fifo:
        raise SqsError(
            "InvalidAttributeName",
            f"You can specify the {name} only when FifoQueue is set to true.",
        )
    if value not in choices:
        raise invalid_attribute_value(name)
    return choices[value]


def _parse_redrive(settings: SqsQueueSettings, name: str, value: str, changes: Changes) -> None:
    changes["redrive"] = parse_redrive(settings.address, value)


def _parse_redrive_allow(
    settings: SqsQueueSettings, name: str, value: str, changes: Changes
) -> None:
    changes["redrive_allow"] = parse_redrive_allow(value)


def _parse_policy(settings: SqsQueueSettings, name: str, value: str, changes: Changes) -> None:
    if value:
        check_policy(value)
    changes["policy"] = value or None


def _parse_key(settings: SqsQueueSettings, name: str, value: str, changes: Changes) -> None:
    changes["kms_key"] = value or None


def _parse_managed(settings: SqsQueueSettings, name: str, value: str, changes: Changes) -> None:
    changes["has_managed_encryption"] = _parse_flag(name, value)


def _settle_encryption(settings: SqsQueueSettings, changes: Changes) -> None:
    """A queue has at most one kind of encryption; the one asked for last wins."""
    key = changes.get("kms_key")
    if key and changes.get("has_managed_encryption"):
        raise conflicting_encryption()
    if key:
        changes["has_managed_encryption"] = False
    elif changes.get("has_managed_encryption"):
        changes["kms_key"] = None


def _refuse_unknown(settings: SqsQueueSettings, name: str, value: str, changes: Changes) -> None:
    raise invalid_attribute_name(name)


_PARSERS: Final[Mapping[str, Callable[[SqsQueueSettings, str, str, Changes], None]]] = {
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


_READERS: Final[Mapping[str, Callable[[SqsQueueSettings, QueueCounts], str | None]]] = {
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

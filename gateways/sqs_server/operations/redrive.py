"""RedrivePolicy and RedriveAllowPolicy: JSON documents inside attributes. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from ..errors import SqsError, invalid_attribute_value, invalid_value
from ..model import QueueAddress
from ..settings import RedriveAllowPolicy, RedrivePermission, RedrivePolicy

MAX_RECEIVE_COUNT: Final = 1_000
MAX_SOURCES: Final = 10
_REDRIVE_KEYS: Final = ("maxReceiveCount", "deadLetterTargetArn")  # in the order AWS looks
_ALLOW_KEYS: Final = frozenset({"redrivePermission", "sourceQueueArns"})
_ARN: Final = re.compile(r"arn(:[^:]+){4}:.+")
# Python converts no more than 4,300 digits.
_FEW_DIGITS: Final = re.compile(r"[0-9]{1,9}")


def parse_redrive(source: QueueAddress, raw: str) -> RedrivePolicy | None:
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


def _target(source: QueueAddress, raw: str, arn: object) -> QueueAddress:
    target = QueueAddress.from_arn(arn) if isinstance(arn, str) else None
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
        isinstance(arn, str) and QueueAddress.from_arn(arn) is not None for arn in sources
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

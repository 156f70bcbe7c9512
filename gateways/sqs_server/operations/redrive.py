"""RedrivePolicy and RedriveAllowPolicy: JSON documents inside attributes. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from ..errors import SqsError, invalid_value
from ..model import QueueAddress
from ..settings import RedriveAllowPolicy, RedrivePermission, RedrivePolicy

MAX_RECEIVE_COUNT: Final = 1_000
MAX_SOURCES: Final = 10
# Python converts no more than 4,300 digits.
_FEW_DIGITS: Final = re.compile(r"[0-9]{1,9}")


def parse_redrive(source: QueueAddress, raw: str) -> RedrivePolicy | None:
    """What a client set as RedrivePolicy; None when it takes the policy away."""
    document = _document(raw)
    if document is None:
        raise redrive_refusal(raw, "Redrive policy is not a valid JSON map.")
    if not document:
        return None
    for key in ("deadLetterTargetArn", "maxReceiveCount"):
        if key not in document:
            raise redrive_refusal(
                raw, f"Redrive policy does not contain mandatory attribute: {key}."
            )
    return RedrivePolicy(
        target=_target(source, raw, document["deadLetterTargetArn"]),
        max_receive_count=_receive_count(raw, document["maxReceiveCount"]),
    )


def render_redrive(policy: RedrivePolicy) -> str:
    """As GetQueueAttributes shows it."""
    return json.dumps(
        {"deadLetterTargetArn": policy.target.arn, "maxReceiveCount": policy.max_receive_count}
    )


def parse_redrive_allow(raw: str) -> RedriveAllowPolicy | None:
    """What a client set as RedriveAllowPolicy; None when it takes the policy away."""
    document = _document(raw)
    if document is not None and not document:
        return None
    try:
        permission = RedrivePermission((document or {}).get("redrivePermission"))
    except ValueError:
        raise _allow_refusal(raw) from None
    sources = (document or {}).get("sourceQueueArns")
    if permission is not RedrivePermission.BY_QUEUE:
        if sources:
            raise _allow_refusal(raw)
        return RedriveAllowPolicy(permission=permission)
    if (
        not isinstance(sources, list)
        or not 1 <= len(sources) <= MAX_SOURCES
        or not all(isinstance(arn, str) and QueueAddress.from_arn(arn) for arn in sources)
    ):
        raise _allow_refusal(raw)
    return RedriveAllowPolicy(permission=permission, sources=tuple(sources))


def render_redrive_allow(policy: RedriveAllowPolicy) -> str:
    """As GetQueueAttributes shows it."""
    document: dict[str, Any] = {"redrivePermission": policy.permission.value}
    if policy.permission is RedrivePermission.BY_QUEUE:
        document["sourceQueueArns"] = list(policy.sources)
    return json.dumps(document)


def redrive_refusal(raw: str, reason: str) -> SqsError:
    """AWS's refusal of a RedrivePolicy, with the text that was sent."""
    return invalid_value("RedrivePolicy", raw, reason)


def _target(source: QueueAddress, raw: str, arn: object) -> QueueAddress:
    target = QueueAddress.from_arn(arn) if isinstance(arn, str) else None
    if target is None:
        raise redrive_refusal(raw, "Invalid value for deadLetterTargetArn.")
    if (target.account, target.region) != (source.account, source.region):
        raise redrive_refusal(raw, "Dead letter target owner should be same as the source.")
    if target.is_fifo != source.is_fifo:
        raise redrive_refusal(raw, "Dead-letter queue must be same type of queue as the source.")
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


def _allow_refusal(raw: str) -> SqsError:
    return invalid_value(
        "RedriveAllowPolicy",
        raw,
        "Amazon SQS can't create the redrive allow policy, as it's in an unsupported format.",
    )


def _document(raw: str) -> Mapping[str, Any] | None:
    if not raw:
        return {}
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):  # nested deeper than anything a policy needs
        return None
    return document if isinstance(document, dict) else None

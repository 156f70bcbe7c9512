"""The words of the server: queues by address and by settings, messages in and out. Pure.

What is made for every message or every call is a msgspec `Struct`: as immutable as an attrs
class, and made, compared and hashed in C, at a tenth of the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

import attrs
import msgspec

DEFAULT_ACCOUNT: Final = "000000000000"
DEFAULT_REGION: Final = "us-east-1"
FIFO_SUFFIX: Final = ".fifo"


class QueueId(msgspec.Struct, frozen=True, order=True):
    """Which queue: names are unique within an account and region."""

    account: str
    region: str
    name: str

    @property
    def arn(self) -> str:
        """As policies and redrive targets name it."""
        return f"arn:{partition_of(self.region)}:sqs:{self.region}:{self.account}:{self.name}"

    @property
    def is_fifo(self) -> bool:
        """Whether SQS takes it for a FIFO queue: by its name."""
        return self.name.endswith(FIFO_SUFFIX)

    @classmethod
    def from_arn(cls, arn: str) -> QueueId | None:
        """The address in an ARN, None when it is not one of SQS."""
        parts = arn.split(":")
        if len(parts) != 6 or parts[0] != "arn" or parts[2] != "sqs" or not all(parts[3:]):
            return None
        return cls(parts[4], parts[3], parts[5])


def partition_of(region: str) -> str:
    """Which of AWS's separate worlds a region lies in."""
    if region.startswith("cn-"):
        return "aws-cn"
    return "aws-us-gov" if region.startswith("us-gov-") else "aws"


class Attribute(msgspec.Struct, frozen=True):
    """One message attribute: a type such as `String`, `Number.int` or `Binary`, and its value."""

    data_type: str
    value: str | bytes


class NewMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was checked and may be stored."""

    body: str
    attributes: Mapping[str, Attribute] = msgspec.field(default_factory=dict)
    trace_header: str | None = None
    """The one system attribute a sender may set: AWSTraceHeader."""
    sender: str = DEFAULT_ACCOUNT
    group: str | None = None
    deduplication_id: str | None = None
    """For FIFO queues always set: what was given, or the hash of the body."""
    delay_s: int | None = None
    """None for the queue's own delay."""

    def __repr__(self) -> str:
        # Without the body and the attributes, which may be secret.
        return f"NewMessage(group={self.group!r}, deduplication_id={self.deduplication_id!r})"


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """What a sender is told: where a duplicate, what its original was told."""

    id: str
    sequence_number: str | None = None


class Received(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One message as a receive hands it out. Times are Unix times."""

    id: str
    receipt: str
    body: str
    attributes: Mapping[str, Attribute]
    trace_header: str | None
    sender: str
    sent_at_s: float
    first_received_at_s: float
    receive_count: int
    group: str | None
    deduplication_id: str | None
    sequence_number: str | None
    dead_letter_source: str | None
    """ARN of the queue it was moved here from by a redrive policy."""

    def __repr__(self) -> str:
        # Without the receipt, the body and the attributes, which may be secret.
        return f"Received(id={self.id!r}, receive_count={self.receive_count})"


@attrs.frozen(kw_only=True)
class QueueCounts:
    """How many messages a queue has, by where they are."""

    visible: int
    in_flight: int
    delayed: int
    oldest_age_s: float | None = None


# What a queue is set to, as types: the engine reads it, the store keeps it. Pure.
#
# The strings that clients send and are shown are the business of `operations/queue_attributes.py`.

MAX_MESSAGE_BYTES: Final = 1_048_576
"""1 MiB: the most SQS takes in one message, and in one batch. Also a new queue's limit."""

DEFAULT_KEY_REUSE_S: Final = 300


@attrs.frozen(kw_only=True)
class RedrivePolicy:
    """Where a message goes that was received more than `max_receive_count` times."""

    target: QueueId
    max_receive_count: int
    text: str | None = attrs.field(default=None, eq=False)
    """The JSON it was set as, to be shown again; the same policy may be written otherwise."""


class RedrivePermission(Enum):
    """Which queues may name this one as their dead-letter queue."""

    ALLOW_ALL = "allowAll"
    DENY_ALL = "denyAll"
    BY_QUEUE = "byQueue"


@attrs.frozen(kw_only=True)
class RedriveAllowPolicy:
    """Which queues may use this one as their dead-letter queue."""

    permission: RedrivePermission
    sources: tuple[str, ...] = ()
    """ARNs, for BY_QUEUE."""
    text: str | None = attrs.field(default=None, eq=False)
    """The JSON it was set as, to be shown again."""

    def allows(self, source: QueueId) -> bool:
        """Whether `source` may send its dead letters here."""
        if self.permission is RedrivePermission.BY_QUEUE:
            return source.arn in self.sources
        return self.permission is RedrivePermission.ALLOW_ALL


@attrs.frozen(kw_only=True)
class SqsQueueSettings:
    """One queue's attributes and tags. Times are Unix times in whole seconds, as SQS shows them."""

    address: QueueId
    visibility_timeout_s: int = 30
    delay_s: int = 0
    retention_s: int = 345_600
    max_message_bytes: int = MAX_MESSAGE_BYTES
    wait_s: int = 0
    content_based_deduplication: bool = False
    deduplicates_per_group: bool = False
    """DeduplicationScope=messageGroup."""
    is_high_throughput: bool = False
    """FifoThroughputLimit=perMessageGroupId."""
    redrive: RedrivePolicy | None = None
    redrive_allow: RedriveAllowPolicy | None = None
    policy: str | None = None
    """The access policy, a JSON document. Kept and shown, not enforced."""
    kms_key: str | None = None
    kms_reuse_s: int = DEFAULT_KEY_REUSE_S
    has_managed_encryption: bool = True
    """SqsManagedSseEnabled; never together with `kms_key`."""
    created_at_s: int = 0
    modified_at_s: int = 0
    tags: Mapping[str, str] = attrs.field(factory=dict)


_PLAIN: Final = tuple(
    field.name
    for field in attrs.fields(SqsQueueSettings)
    if field.name not in {"address", "redrive", "redrive_allow", "tags"}
)


def pack(settings: SqsQueueSettings) -> dict[str, Any]:
    """As plain values that JSON can hold."""
    packed: dict[str, Any] = {name: getattr(settings, name) for name in _PLAIN}
    packed["address"] = _pack_address(settings.address)
    packed["tags"] = dict(settings.tags)
    if settings.redrive is not None:
        packed["redrive"] = {
            "target": _pack_address(settings.redrive.target),
            "max_receive_count": settings.redrive.max_receive_count,
            "text": settings.redrive.text,
        }
    if settings.redrive_allow is not None:
        packed["redrive_allow"] = {
            "permission": settings.redrive_allow.permission.value,
            "sources": list(settings.redrive_allow.sources),
            "text": settings.redrive_allow.text,
        }
    return packed


def unpack(packed: Mapping[str, Any]) -> SqsQueueSettings:
    """What `pack` made, in any version: unknown fields are dropped, missing ones default."""
    values: dict[str, Any] = {name: packed[name] for name in _PLAIN if name in packed}
    return SqsQueueSettings(
        address=QueueId(*packed["address"]),
        redrive=_unpack_redrive(packed.get("redrive")),
        redrive_allow=_unpack_redrive_allow(packed.get("redrive_allow")),
        tags=dict(packed.get("tags", {})),
        **values,
    )


def _pack_address(address: QueueId) -> list[str]:
    return [address.account, address.region, address.name]


def _unpack_redrive(packed: Mapping[str, Any] | None) -> RedrivePolicy | None:
    if packed is None:
        return None
    return RedrivePolicy(
        target=QueueId(*packed["target"]),
        max_receive_count=packed["max_receive_count"],
        text=packed.get("text"),
    )


def _unpack_redrive_allow(packed: Mapping[str, Any] | None) -> RedriveAllowPolicy | None:
    if packed is None:
        return None
    return RedriveAllowPolicy(
        permission=RedrivePermission(packed["permission"]),
        sources=tuple(packed["sources"]),
        text=packed.get("text"),
    )

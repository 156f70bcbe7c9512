"""The words of the server: queues by address, messages on their way in and out. Pure.

What is made for every message or every call is a msgspec `Struct`: as immutable as an attrs
class, and made, compared and hashed in C, at a tenth of the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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

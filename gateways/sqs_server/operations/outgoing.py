"""A message to send: from a call's parameters to `NewMessage`, with every limit checked. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from ..errors import (
    invalid_message_contents,
    invalid_parameter_value,
    invalid_value,
    missing_parameter,
)
from ..model import Accepted, Attribute, NewMessage
from ..settings import QueueSettings
from .characters import encode_legal
from .digests import attributes_digest, body_digest, digest_and_weight
from .message_attributes import TRACE_HEADER, read_attributes, read_trace_header
from .parameters import Parameters, number_within, optional_token

if TYPE_CHECKING:
    from ..protocol import Call

MAX_DELAY_S: Final = 900
_DELAY_REASON: Final = f"DelaySeconds must be >= 0 and <= {MAX_DELAY_S}."

WRONG_QUEUE_TYPE: Final = "The request include parameter that is not valid for this queue type."
NO_DEDUPLICATION: Final = (
    "The queue should either have ContentBasedDeduplication enabled or "
    "MessageDeduplicationId provided explicitly"
)


class Outgoing(msgspec.Struct):
    """A checked message, what it weighs, and what its sender will be told of it."""

    message: NewMessage
    byte_count: int
    told: dict[str, Any]
    """The digests; `answer` adds the rest."""

    def answer(self, accepted: Accepted) -> dict[str, Any]:
        """What the sender is told."""
        told = self.told
        told["MessageId"] = accepted.id
        if accepted.sequence_number is not None:
            told["SequenceNumber"] = accepted.sequence_number
        return told


class Intake(msgspec.Struct, frozen=True):
    """What the messages of one call have in common: the queue's terms, and who sends."""

    settings: QueueSettings
    is_fifo: bool
    sender: str
    trace_header: str | None
    """The trace the request itself belongs to."""

    @classmethod
    def of(cls, call: Call, settings: QueueSettings) -> Self:
        """For the messages of a call to a queue of these settings."""
        return cls(settings, settings.address.is_fifo, call.sender, call.trace_header)

    def read(self, entry: Parameters) -> Outgoing:
        """The message in a SendMessage call or a batch's entry; SqsError says what is wrong.

        Its size is only weighed: a single message and a batch are refused in different words.
        """
        body: str | None = entry.get("MessageBody")
        if not body:
            raise missing_parameter("MessageBody")
        encoded = encode_legal(body)
        if encoded is None:
            raise invalid_message_contents()
        told = {"MD5OfMessageBody": body_digest(encoded)}
        # Most messages are a body and what it is addressed by (QueueUrl or Id): nothing to check.
        if len(entry) == 2 and not self.is_fifo:
            message = NewMessage(body=body, trace_header=self.trace_header, sender=self.sender)
            return Outgoing(message, len(encoded), told)
        return self._read_rest(entry, body, encoded, told)

    def _read_rest(
        self, entry: Parameters, body: str, encoded: bytes, told: dict[str, Any]
    ) -> Outgoing:
        byte_count = len(encoded)
        attributes: dict[str, Attribute] = {}
        if given := entry.get("MessageAttributes"):
            attributes = read_attributes(given)
            told["MD5OfMessageAttributes"], weight = digest_and_weight(attributes)
            byte_count += weight
        trace_header = self.trace_header
        if given := entry.get("MessageSystemAttributes"):
            trace_header, told["MD5OfMessageSystemAttributes"] = _trace_header(given)
        group = optional_token(entry, "MessageGroupId")
        message = NewMessage(
            body=body,
            attributes=attributes,
            trace_header=trace_header,
            sender=self.sender,
            group=group,
            deduplication_id=self._deduplication_id(entry, group, encoded),
            delay_s=self._delay_s(entry),
        )
        return Outgoing(message, byte_count, told)

    def _deduplication_id(self, entry: Parameters, group: str | None, body: bytes) -> str | None:
        given = optional_token(entry, "MessageDeduplicationId")
        if not self.is_fifo:
            if given is not None:
                raise invalid_value("MessageDeduplicationId", given, WRONG_QUEUE_TYPE)
            return None
        if group is None:
            raise missing_parameter("MessageGroupId")
        if given is not None:
            return given
        if not self.settings.content_based_deduplication:
            raise invalid_parameter_value(NO_DEDUPLICATION)
        return sha256(body).hexdigest()

    def _delay_s(self, entry: Parameters) -> int | None:
        delay_s = number_within(entry, "DelaySeconds", 0, MAX_DELAY_S, reason=_DELAY_REASON)
        if delay_s is None or not self.is_fifo:
            return delay_s
        if delay_s:
            raise invalid_value("DelaySeconds", delay_s, WRONG_QUEUE_TYPE)
        return None  # zero on a FIFO queue means: the queue's own delay


def _trace_header(given: Mapping[str, Parameters]) -> tuple[str, str]:
    """The header and its digest."""
    header = read_trace_header(given)
    return header, attributes_digest({TRACE_HEADER: Attribute("String", header)})

"""Attributes: the names of OpenTelemetry's messaging conventions, and a few of our own.

Spelled here and not taken from the conventions' package: it keeps them in a module that it calls
private, and moves them.
"""

from __future__ import annotations

from typing import Final

from ...message import Message

SYSTEM: Final = "messaging.system"
DESTINATION: Final = "messaging.destination.name"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
BATCH_COUNT: Final = "messaging.batch.message_count"
MESSAGE_ID: Final = "messaging.message.id"
CONVERSATION_ID: Final = "messaging.message.conversation_id"
BODY_SIZE: Final = "messaging.message.body.size"
ERROR_TYPE: Final = "error.type"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"
EXCEPTION_STACKTRACE: Final = "exception.stacktrace"

MESSAGE_TYPE: Final = "pumphouse.message.type"
ATTEMPT: Final = "pumphouse.attempt"
OUTCOME: Final = "pumphouse.outcome"
REASON: Final = "pumphouse.rejection.reason"

Attributes = dict[str, str | int]


def message_attributes(message: Message) -> Attributes:
    """What may be known of a message: never its body, nor its headers."""
    found: Attributes = {MESSAGE_ID: message.id, BODY_SIZE: len(message.body)}
    if message.type:
        found[MESSAGE_TYPE] = message.type
    if message.correlation_id is not None:
        found[CONVERSATION_ID] = message.correlation_id
    return found

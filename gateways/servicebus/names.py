"""Names: what Service Bus calls a queue, its dead letters and its sessions. Pure."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final

from pump.errors import ConfigurationError, UnsupportedOperation

from .limits import MAX_ID_CHARS, MAX_NAME_CHARS

DEAD_LETTERS: Final = "/$DeadLetterQueue"
"""Behind a queue's name it is the queue of what Service Bus itself has taken out."""
NO_GROUP: Final = "pump~"
"""The session of messages without a group, on queues where each must have one."""
_HASHED: Final = "pump~sha256~"
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?")


def checked_name(queue: str) -> str:
    """The name itself; `ConfigurationError` when no queue can have it."""
    own = parent_of(queue) or queue
    if len(own) > MAX_NAME_CHARS or not _NAME.fullmatch(own):
        raise ConfigurationError(
            "queue",
            queue,
            f"use 1 to {MAX_NAME_CHARS} letters, digits, '.', '-', '_' and '/', with a letter or "
            f"a digit at both ends",
        )
    return queue


def parent_of(queue: str) -> str | None:
    """The queue whose dead letters this name means; None for a queue of its own."""
    if queue.lower().endswith(DEAD_LETTERS.lower()):
        return queue[: -len(DEAD_LETTERS)]
    return None


def sendable_name(queue: str) -> str:
    """The name of a queue that can be sent to."""
    if parent_of(checked_name(queue)) is not None:
        raise UnsupportedOperation(
            "sb",
            f"sending to {queue!r}",
            "only Service Bus itself moves messages there; name a queue of your own",
        )
    return queue


def session_id_of(group: str | None) -> str | None:
    """The session of a group: its name, or the name's hash where that is too long."""
    if group is None:
        return None
    if not group:
        return NO_GROUP
    is_odd = group.startswith(NO_GROUP) or len(group) > MAX_ID_CHARS
    if not is_odd and group.isprintable() and group == group.strip():
        return group
    return _HASHED + sha256(group.encode("utf-8", "surrogatepass")).hexdigest()


def group_of(session_id: str) -> str | None:
    """The group of a session; None where only the messages themselves can tell."""
    if session_id == NO_GROUP:
        return ""
    return None if session_id.startswith(_HASHED) else session_id


def legal_id(text: str) -> str:
    """A de-duplication id as Service Bus compares it: 1 to 128 characters, or its hash."""
    if 0 < len(text) <= MAX_ID_CHARS and text.isascii() and text.isprintable():
        return text
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

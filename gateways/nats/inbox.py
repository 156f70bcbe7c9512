"""Inboxes: where the answers to pulls arrive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pump.ids import new_id

from .incoming import Incoming, status_of


class Inbox:
    """A subscription that answers one pull at a time.

    Each pull has a reply subject of its own, which only the server's statuses come under: one
    that is late does not end the pull after.
    """

    def __init__(self) -> None:
        self.subscription: Any = None
        self._base = f"_INBOX.{new_id()}"
        self._count = 0
        self._receiver: Callable[[Incoming], None] | None = None

    @property
    def subjects(self) -> str:
        """Everything that is sent to it."""
        return f"{self._base}.*"

    def begin(self, receiver: Callable[[Incoming], None]) -> str:
        """Have all answers given to `receiver` from now on; returns where they are to be sent."""
        self._count += 1
        self._receiver = receiver
        return f"{self._base}.{self._count}"

    def deliver(self, message: Incoming) -> None:
        """Called by the client, in the order of arrival."""
        if self._receiver is None:
            return
        is_late = status_of(message) and not message.subject.endswith(f".{self._count}")
        if not is_late:
            self._receiver(message)

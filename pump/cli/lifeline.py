"""Lifeline: a process does not outlive its supervisor, not even with an event loop that is stuck.

Whoever listens on the event loop drains when the supervisor has gone. A loop that a handler blocks,
or an import that never ends, hears nothing; so a thread watches, too.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable
from typing import Final

import attrs

DEAF_S: Final = 60.0
"""How long the event loop may take to hear that the supervisor has gone. Leases are not renewed
meanwhile: what it has in hand comes again elsewhere."""


@attrs.frozen(eq=False)
class Lifeline:
    """Our end of the intercom, and whether it was heard that the other end has gone."""

    end: socket.socket
    is_heard: threading.Event = attrs.field(factory=threading.Event)

    def watch(self, give_up: Callable[[], object], *, deaf_s: float = DEAF_S) -> None:
        """Have a thread call `give_up` when the other end has gone and nobody hears of it."""
        # A copy, for the loop closes its own.
        watched = os.dup(self.end.fileno())
        threading.Thread(
            target=self._wait, args=(watched, give_up, deaf_s), name="lifeline", daemon=True
        ).start()

    def _wait(self, watched: int, give_up: Callable[[], object], deaf_s: float) -> None:
        poll = select.poll()
        # For nothing but the end, which is always told: what is said is for the loop to read.
        poll.register(watched, 0)
        while not poll.poll():
            continue
        os.close(watched)
        if not self.is_heard.wait(deaf_s):
            give_up()

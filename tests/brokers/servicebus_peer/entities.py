"""Queues as Service Bus keeps them: locks, counts, schedules, sessions, duplicates. No I/O.

A message is opaque here: whatever it is, it is kept, counted and given out again.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any

DEAD_LETTERS = "/$DeadLetterQueue"


_ahead_s = 0.0


def unix_time_s() -> float:
    """A server's time is its own; nothing of `pump` can be imported here."""
    return time.time() + _ahead_s  # noqa: TID251


def travel(seconds: float) -> None:
    """Move this server's time on, as if so much had passed."""
    global _ahead_s
    _ahead_s += seconds


@dataclass(eq=False)
class Stored:
    """One message of a queue."""

    sequence: int
    message: Any
    enqueued_at: float
    session: str | None = None
    delivery_count: int = 0
    due_at: float = 0.0
    """When a scheduled one becomes available."""
    token: uuid.UUID | None = None
    locked_until: float = 0.0
    dead_because: tuple[str, str] | None = None
    came_from: str | None = None

    def is_locked(self, now: float) -> bool:
        return self.token is not None and self.locked_until > now


@dataclass(eq=False)
class SessionLock:
    """Who holds a session, and what is noted about it."""

    holder: Any = None
    locked_until: float = 0.0
    state: bytes | None = None


@dataclass(eq=False)
class Queue:
    """One queue, or the dead letters of one."""

    name: str
    settings: dict[str, str] = field(default_factory=dict)
    lock_s: float = 60.0
    max_delivery_count: int = 10
    needs_session: bool = False
    duplicate_window_s: float | None = None
    forward_dead_to: str | None = None
    created_at: float = 0.0
    messages: dict[int, Stored] = field(default_factory=dict)
    sessions: dict[str, SessionLock] = field(default_factory=dict)
    seen: dict[str, float] = field(default_factory=dict)
    last_sequence: int = 0

    @property
    def is_dead_letters(self) -> bool:
        return self.name.lower().endswith(DEAD_LETTERS.lower())

    def add(self, message: Any, *, now: float, message_id: str | None, **fields: Any) -> Stored:
        """Keep a message; a duplicate is taken and dropped."""
        self.last_sequence += 1
        stored = Stored(self.last_sequence, message, now, **fields)
        if self._is_duplicate(message_id, now):
            return stored
        self.messages[stored.sequence] = stored
        return stored

    def available(self, now: float, session: str | None = None) -> Iterator[Stored]:
        """What may be given out, the oldest first. A scheduled message is as old as it is due."""
        free = [
            each
            for each in self.messages.values()
            if each.due_at <= now
            and not each.is_locked(now)
            and (not self.needs_session or each.session == session)
        ]
        return iter(
            sorted(free, key=lambda each: (max(each.due_at, each.enqueued_at), each.sequence))
        )

    def lock(self, stored: Stored, now: float) -> uuid.UUID:
        """Lock a message for whoever it is given to; in a session, as long as that is held."""
        stored.token = uuid.uuid4()
        stored.locked_until = inf if self.needs_session else now + self.lock_s
        return stored.token

    def find(self, token: uuid.UUID, now: float) -> Stored | None:
        """The message that this token locks; None when the lock is lost."""
        for stored in self.messages.values():
            if stored.token == token and stored.is_locked(now):
                return stored
        return None

    def next_session(self, now: float) -> str | None:
        """A session that nobody holds and that has messages."""
        for stored in sorted(self.messages.values(), key=lambda each: each.sequence):
            name = stored.session
            if name is not None and stored.due_at <= now and not self.is_session_held(name, now):
                return name
        return None

    def is_session_held(self, session: str, now: float) -> bool:
        lock = self.sessions.get(session)
        return lock is not None and lock.holder is not None and lock.locked_until > now

    def hold_session(self, session: str, holder: Any, now: float) -> SessionLock:
        lock = self.sessions.setdefault(session, SessionLock())
        lock.holder, lock.locked_until = holder, now + self.lock_s
        return lock

    def _is_duplicate(self, message_id: str | None, now: float) -> bool:
        if self.duplicate_window_s is None or message_id is None:
            return False
        seen_at = self.seen.get(message_id)
        if seen_at is not None and now - seen_at < self.duplicate_window_s:
            return True
        self.seen[message_id] = now
        return False


class Namespace:
    """All queues there are. `id_of` reads a message's id, for what is forwarded."""

    def __init__(self, id_of: Callable[[Any], str | None]) -> None:
        self.queues: dict[str, Queue] = {}
        self._id_of = id_of

    def find(self, name: str) -> Queue | None:
        """Names are compared without regard to case, as Azure does it."""
        return self.queues.get(name.lower())

    def create(self, queue: Queue) -> None:
        self.queues[queue.name.lower()] = queue
        dead = Queue(
            queue.name + DEAD_LETTERS,
            lock_s=queue.lock_s,
            max_delivery_count=2**31,
            created_at=queue.created_at,
        )
        self.queues[dead.name.lower()] = dead

    def delete(self, name: str) -> None:
        self.queues.pop(name.lower(), None)
        self.queues.pop((name + DEAD_LETTERS).lower(), None)

    def complete(self, queue: Queue, stored: Stored) -> None:
        queue.messages.pop(stored.sequence, None)

    def release(self, stored: Stored) -> None:
        """Give it back as if it had not been given out."""
        stored.token = None

    def abandon(self, queue: Queue, stored: Stored, now: float) -> None:
        """Give it back as tried, or dead-letter it when that was its last try."""
        stored.token = None
        stored.delivery_count += 1
        if stored.delivery_count >= queue.max_delivery_count:
            detail = f"it was delivered {stored.delivery_count} times"
            self.dead_letter(queue, stored, "MaxDeliveryCountExceeded", detail, now)

    def dead_letter(
        self, queue: Queue, stored: Stored, reason: str, detail: str, now: float
    ) -> None:
        """Move a message to the dead letters, and on from there where that is set up."""
        queue.messages.pop(stored.sequence, None)
        target = self.find(queue.forward_dead_to or "") or self.find(queue.name + DEAD_LETTERS)
        if target is None:
            return
        target.add(
            stored.message,
            now=now,
            message_id=self._id_of(stored.message),
            session=stored.session,
            dead_because=(reason, detail),
            came_from=queue.name,
        )

    def expire(self, now: float) -> None:
        """Take back what was locked for too long."""
        for queue in list(self.queues.values()):
            for stored in list(queue.messages.values()):
                if stored.token is not None and not stored.is_locked(now):
                    self.abandon(queue, stored, now)
            for name, lock in queue.sessions.items():
                if lock.holder is not None and lock.locked_until <= now:
                    self.release_session(queue, name, now)

    def release_session(self, queue: Queue, session: str, now: float) -> None:
        """Let go of a session; what was given out of it and not settled was tried."""
        queue.sessions[session].holder = None
        for stored in list(queue.messages.values()):
            if stored.session == session and stored.token is not None:
                self.abandon(queue, stored, now)

"""The sessions of one queue, purely: which group is locked, by whom and until when.

A locked group counts as in flight, so that nothing of it is offered to ordinary receives, and they
pay nothing for it. Messages without a group are in no session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from .agenda import Agenda
from .line import Line
from .moves import Extension
from .record import LeaseBatch
from .session_lock import SessionLock


class SessionLocks:
    """Every lock that is held. The caller promotes before it asks."""

    def __init__(self, line: Line, agenda: Agenda, tokens: Callable[[], str]) -> None:
        self._line = line
        self._agenda = agenda
        self._tokens = tokens
        self._held: dict[str, SessionLock] = {}

    def __iter__(self) -> Iterator[SessionLock]:
        return iter(list(self._held.values()))

    def find(self, token: str) -> SessionLock | None:
        """The lock of this token, as long as it is held."""
        return self._held.get(token)

    def accept(
        self, group: str | None, *, until_s: float, owner: str = "", request: int | None = None
    ) -> SessionLock | None:
        """Lock a group, or for None the next that has a message to give; None when it is in use.

        In use it is also while ordinary receives have some of it in flight.
        """
        wanted = self._line.next_free_group() if group is None else group
        domain = None if wanted is None else self._line.lock(wanted)
        if wanted is None or domain is None:
            return None
        lock = SessionLock(self._tokens(), wanted, owner, until_s, request, domain)
        self._held[lock.id] = lock
        self._agenda.add(until_s, lock)
        return lock

    def renew(self, lock: SessionLock, *, until_s: float) -> Extension:
        """Make a lock, and the leases under it, end then."""
        extension = Extension(moved=list(lock.in_hand()))
        subjects: list[SessionLock | LeaseBatch] = [lock, *extension.moved]
        for subject in subjects:
            subject.expires_s = until_s
            self._agenda.note_stale()
            self._agenda.add(until_s, subject)
        return extension

    def end(self, lock: SessionLock) -> None:
        """Let go of a lock. What was received under it has ended, or ends at the same moment."""
        if self._held.pop(lock.id, None) is not None:
            lock.is_held = False
            self._line.release(lock.domain)

    def restore(self, locks: Iterable[SessionLock], batches: Iterable[LeaseBatch]) -> None:
        """Start from locks as they once were, and find what was received under them: nobody else
        has any of a locked group. The line is formed anew after this.
        """
        by_group = {lock.group: lock for lock in locks}
        self._held.update((lock.id, lock) for lock in by_group.values())
        self.schedule()
        for batch in batches:
            groups = {record.message.group for record in batch.members.values()}
            for group in groups & by_group.keys():
                by_group[group or ""].add(batch)

    def schedule(self) -> None:
        """Let every lock fall due, in an agenda that was cleared."""
        for lock in self._held.values():
            self._agenda.add(lock.expires_s, lock)

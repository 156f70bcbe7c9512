"""All connections: counted, and closed when a client dawdles."""

from __future__ import annotations

from typing import Protocol

from pump.clock import Clock, Timer

from .limits import HttpLimits


class Watched(Protocol):
    """A connection, as far as the watch is concerned."""

    def is_overdue(self, now_s: float, limits: HttpLimits) -> bool:
        """Whether it has kept us waiting for too long."""

    def waits_since(self) -> tuple[bool, float] | None:
        """Whether it has been served before, and since when it has nothing for us to do; None
        while a request of it is worked on.
        """

    def abort(self) -> None:
        """Close it without regard to what it has not taken yet."""


class Watch:
    """Knows every open connection, and closes those that are over a limit of time."""

    def __init__(self, clock: Clock, limits: HttpLimits) -> None:
        self.clock = clock
        self._limits = limits
        self._connections: set[Watched] = set()
        self._timer: Timer | None = None

    def start(self) -> None:
        """Look at the connections from time to time, until `stop`."""
        self._timer = self.clock.call_later(self._limits.header_timeout_s / 2, self._look)

    def stop(self) -> None:
        """Look no more; connections stay as they are."""
        if self._timer is not None:
            self._timer.cancel()

    def admit(self, connection: Watched) -> bool:
        """Take a connection into account; where there are too many, another one has to go.

        First those that are half-open, the oldest of them, and then those that are idle. Only
        when requests of all of them are worked on, the new one is not admitted.
        """
        if len(self._connections) >= self._limits.max_connections and not self._evict():
            return False
        self._connections.add(connection)
        return True

    def _evict(self) -> bool:
        waiting = [(since, each) for each in self._connections if (since := each.waits_since())]
        if not waiting:
            return False
        _, oldest = min(waiting, key=lambda pair: pair[0])
        self._connections.discard(oldest)
        oldest.abort()
        return True

    def forget(self, connection: Watched) -> None:
        """It is closed."""
        self._connections.discard(connection)

    def _look(self) -> None:
        now_s = self.clock.now_s()
        for connection in list(self._connections):
            if connection.is_overdue(now_s, self._limits):
                connection.abort()
        self.start()

"""Polls: whether the broker answers this pump's receives. Pure.

| a receive   | then the broker is                                                          |
|-------------|-----------------------------------------------------------------------------|
| is asked    | silent from now on, unless it was so already                                |
| returns     | heard from: silent anew while others are open, else nothing is expected     |
| fails       | as silent as before, and one failure more in a row                          |
| is recalled | as before; with none left, nothing is expected of it                        |

Time alone says nothing: a pump whose hands are full asks for nothing, however long its handlers
take, and one that is paused does not either.
"""

from __future__ import annotations


class Polls:
    """The receives of one pump, whichever of its pollers makes them."""

    def __init__(self) -> None:
        self._open_count = 0
        self._silent_since_s: float | None = None
        self._failures_in_a_row = 0
        self._last_error: Exception | None = None

    @property
    def open_count(self) -> int:
        """Receives under way."""
        return self._open_count

    @property
    def failures_in_a_row(self) -> int:
        """Receives that failed since one last succeeded."""
        return self._failures_in_a_row

    @property
    def last_error(self) -> Exception | None:
        """What the last failure was; None once a receive has succeeded."""
        return self._last_error

    def silence_s(self, now_s: float) -> float:
        """For how long the broker owes an answer."""
        return 0.0 if self._silent_since_s is None else now_s - self._silent_since_s

    def asked(self, now_s: float) -> None:
        """A receive was begun."""
        self._open_count += 1
        if self._silent_since_s is None:
            self._silent_since_s = now_s

    def answered(self, now_s: float) -> None:
        """A receive returned, with messages or without."""
        self._open_count -= 1
        self._failures_in_a_row = 0
        self._last_error = None
        self._silent_since_s = now_s if self._open_count else None

    def failed(self, error: Exception) -> None:
        """A receive failed."""
        self._open_count -= 1
        self._failures_in_a_row += 1
        self._last_error = error

    def recalled(self) -> None:
        """A receive was cancelled."""
        self._open_count -= 1

    def paused(self) -> None:
        """Nobody asks for anything any more."""
        self._silent_since_s = None
        self._failures_in_a_row = 0

"""Chosen: which of the dead letters that come are those that were selected. Pure.

| the snapshot saw        | selected are                                                         |
|-------------------------|----------------------------------------------------------------------|
| the broker's own ids    | the entries themselves                                               |
| keys alone, by a peek   | of each key as many entries as it had rows; the first that are begun |

What has been sent, failed and was moved back by a broker that wrote nothing on it has the key of
the one before it. It is not sent again by the same run: it would go round, and its removal would
be counted as that of another one, which is still there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .identity import KEY_LENGTH


class Chosen:
    """The selection, as one consumer meets it."""

    def __init__(self, selected: Mapping[str, int]) -> None:
        self._selected = selected
        self._begun: dict[str, tuple[str, ...]] = {}

    def has(self, entry: str) -> bool:
        """Whether it is selected; from then on it has its place, however often it comes."""
        if entry in self._selected:
            return True
        key = entry[:KEY_LENGTH]
        begun = self._begun.get(key, ())
        if entry in begun:
            return True
        if len(begun) >= self._selected.get(key, 0):
            return False
        self._begun[key] = (*begun, entry)
        return True

    def note(self, entries: Iterable[str]) -> None:
        """These were begun by others, or by a run before."""
        for entry in entries:
            self.has(entry)

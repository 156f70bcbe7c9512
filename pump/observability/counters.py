"""Counters: what happened how often, by label. Owned by an app, read by whoever exports it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

Labels = tuple[tuple[str, str], ...]


class Counters:
    """Named, labelled, ever-growing numbers; touched from the event loop's thread only."""

    def __init__(self) -> None:
        self._values: Counter[tuple[str, Labels]] = Counter()

    def add(self, name: str, amount: int = 1, **labels: str) -> None:
        """Count `amount` more of `name`."""
        self._values[name, tuple(sorted(labels.items()))] += amount

    def value(self, name: str, **labels: str) -> int:
        """The sum over all series of `name` that carry these labels."""
        wanted = set(labels.items())
        return sum(
            value
            for (known, having), value in self._values.items()
            if known == name and wanted <= set(having)
        )

    def snapshot(self) -> Mapping[tuple[str, Labels], int]:
        """A copy of every series."""
        return dict(self._values)

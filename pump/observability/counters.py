"""Counters: what happened how often, by label. Owned by an app, read by exporters."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Labels = tuple[tuple[str, str], ...]
"""Names and values, sorted by name."""


class Counter:
    """One ever-growing number; frequent counters hold one, and pay for an addition only."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, amount: int = 1) -> None:
        """Count `amount` more."""
        self.value += amount


class Counters:
    """Named, labelled, ever-growing numbers; changed on the event loop's thread only, and read
    from any.
    """

    def __init__(self) -> None:
        self._series: dict[tuple[str, Labels], Counter] = {}
        self._names: set[str] = set()
        self._on_name: list[Callable[[str], object]] = []

    def series(self, name: str, **labels: str) -> Counter:
        """The series of `name` with exactly these labels; it starts at zero."""
        key = name, tuple(sorted(labels.items()))
        found = self._series.get(key)
        if found is None:
            found = self._series[key] = Counter()
            self._note(name)
        return found

    def add(self, name: str, amount: int = 1, **labels: str) -> None:
        """Count `amount` more of `name`."""
        self.series(name, **labels).value += amount

    def value(self, name: str, **labels: str) -> int:
        """The sum over all series of `name` that carry these labels."""
        wanted = set(labels.items())
        return sum(
            value
            for (known, having), value in self.snapshot().items()
            if known == name and wanted <= set(having)
        )

    def snapshot(self) -> Mapping[tuple[str, Labels], int]:
        """A copy of every series."""
        # One call into C takes the copy, so a thread that reads sees no dict in mid-change.
        return {key: series.value for key, series in list(self._series.items())}

    def tell_names(self, listener: Callable[[str], object]) -> None:
        """Have `listener` called with every name that is counted, now or later, once."""
        if listener not in self._on_name:
            self._on_name.append(listener)
        for name in sorted(self._names):
            listener(name)

    def _note(self, name: str) -> None:
        if name not in self._names:
            self._names.add(name)
            for listener in self._on_name:
                listener(name)

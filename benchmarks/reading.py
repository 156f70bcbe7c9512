"""Readings: what one run of one contender took, and how it is measured."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    import psutil

ROOT = Path(__file__).resolve().parent.parent
"""What child processes get as their path: our packages, and `tests.brokers`."""


@attrs.frozen(kw_only=True)
class Span:
    """Time between two moments: on the wall, and of the processor in all threads."""

    wall_s: float
    cpu_s: float


@attrs.frozen(kw_only=True)
class Reading:
    """`messages` went through the contender's `spans`, which follow one another."""

    messages: int
    spans: Mapping[str, Span]
    rss_mib: tuple[float, ...] = ()
    """Resident memory over the run, for the contenders that watch it."""
    calls: Mapping[str, int] = attrs.field(factory=dict)
    """Calls of a broker's API by operation, for the contenders that make any."""
    figures: Mapping[str, float] = attrs.field(factory=dict)
    """Whatever else was measured, by name; the name ends with the unit."""

    @property
    def wall_s(self) -> float:
        """From the first send to the last settlement."""
        return sum(span.wall_s for span in self.spans.values())

    @property
    def cpu_s(self) -> float:
        """Processor time over the same."""
        return sum(span.cpu_s for span in self.spans.values())

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.wall_s

    @property
    def cpu_us(self) -> float:
        """Microseconds of processor time a message."""
        return self.cpu_s / self.messages * 1e6

    @property
    def calls_per_thousand(self) -> float:
        """Calls of a broker's API a thousand messages."""
        return sum(self.calls.values()) / self.messages * 1000

    def span_cpu_us(self, span: str) -> float:
        """Microseconds of processor time a message, in one span."""
        return self.spans[span].cpu_s / self.messages * 1e6

    def to_json(self) -> dict[str, Any]:
        """Plain values, for a pipe."""
        return attrs.asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Reading:
        """The reading that `to_json` wrote."""
        return cls(
            messages=values["messages"],
            spans={name: Span(**span) for name, span in values["spans"].items()},
            rss_mib=tuple(values["rss_mib"]),
            calls=values["calls"],
            figures=values["figures"],
        )


class Stopwatch:
    """Collects spans; time outside of them is not counted."""

    def __init__(self) -> None:
        self._spans: dict[str, Span] = {}

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Measure the body. What was thrown away before it is collected first."""
        gc.collect()
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        yield
        cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
        self._spans[name] = Span(wall_s=wall_s, cpu_s=cpu_s)

    def reading(self, messages: int) -> Reading:
        """What was measured."""
        return Reading(messages=messages, spans=self._spans)


class CpuClock:
    """Wall clock and processor time of some processes with all their children.

    `less` is processor time that is no work of theirs, such as that of the thread that measures.
    """

    def __init__(
        self, processes: Callable[[], list[psutil.Process]], less: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._processes = processes
        self._less = less
        self._wall_s, self._cpu_s = time.perf_counter(), self._spent_s()

    def reading(self, messages: int) -> Reading:
        """What passed since this clock was made."""
        span = Span(wall_s=time.perf_counter() - self._wall_s, cpu_s=self._spent_s() - self._cpu_s)
        return Reading(messages=messages, spans={"consume": span})

    def _spent_s(self) -> float:
        spent_s = sum(sum(each.cpu_times()[:4]) for each in self._processes())
        return float(spent_s) - self._less()


@attrs.define
class Results:
    """All readings by contender, one a round, and what could not be measured."""

    readings: dict[str, list[Reading]] = attrs.field(factory=dict)
    missing: dict[str, str] = attrs.field(factory=dict)

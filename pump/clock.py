"""Time and chance: the only module that asks the machine for either.

Everything that waits takes a `Clock`, so a test that holds a `VirtualClock` decides when
30 seconds have passed.
"""

from __future__ import annotations

import abc
import asyncio
import os
import random
import re
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Protocol, Self


class Timer(Protocol):
    """A scheduled callback; cancelling a fired one does nothing."""

    def cancel(self) -> None:
        """Make sure the callback will not run."""


class Clock(abc.ABC):
    """Where now, waiting and jitter come from."""

    @abc.abstractmethod
    def now_s(self) -> float:
        """Monotonic seconds; only differences mean anything."""

    @abc.abstractmethod
    def time_s(self) -> float:
        """Unix time in seconds."""

    def boot_id(self) -> str:
        """What tells one run of the machine, and so of `now_s`, from the next; empty where that is
        not known. May read files.
        """
        return ""

    @abc.abstractmethod
    def chance(self) -> float:
        """A number in [0, 1), for jitter."""

    @abc.abstractmethod
    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        """Run `callback` on the running loop once `delay_s` have passed."""

    async def sleep(self, delay_s: float) -> None:
        """Return after `delay_s`; with zero, after every other ready task has had a turn."""
        if delay_s <= 0:
            await yield_to_loop()
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_later(delay_s, partial(_resolve, done))
        try:
            await done
        finally:
            timer.cancel()

    def timeout(self, delay_s: float | None) -> Deadline:
        """`async with clock.timeout(5): …` raises TimeoutError when the body takes longer."""
        return Deadline(self, delay_s)


class Timers(Protocol):
    """Where a deadline's timer comes from: a clock, or what shares one of a clock's timers."""

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        """Run `callback` once `delay_s` have passed."""


class Deadline:
    """An `asyncio.timeout` on a given clock; None waits for ever."""

    def __init__(self, timers: Timers, delay_s: float | None) -> None:
        self._timers = timers
        self._delay_s = delay_s
        self._timer: Timer | None = None
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._is_expired = False

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        if self._task is None:
            raise RuntimeError("a timeout needs a running task")
        self._cancelling = self._task.cancelling()
        if self._delay_s is not None:
            self._timer = self._timers.call_later(self._delay_s, self._expire)
        return self

    def _expire(self) -> None:
        self._is_expired = True
        if self._task is not None:
            self._task.cancel()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            # It knows us: together we would wait for the garbage collector.
            self._timer = None
        if not self._is_expired or self._task is None:
            return
        # A cancellation that came from outside as well must win over our timeout.
        ours_only = self._task.uncancel() <= self._cancelling
        if ours_only and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise TimeoutError from error


class SystemClock(Clock):
    """The machine's clock and the running event loop's timers."""

    # Asked several times a message, so there is no call of ours around the machine's.
    now_s = staticmethod(time.monotonic)
    time_s = staticmethod(time.time)

    def boot_id(self) -> str:
        try:
            with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                # A container may have a time of its own.
                return f"{file.read().strip()} {os.readlink('/proc/self/ns/time')}"
        except OSError:
            return ""

    def chance(self) -> float:
        return random.random()

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(delay_s, callback)


SYSTEM_CLOCK = SystemClock()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def yield_to_loop() -> None:
    """Let every other ready task have a turn."""
    await asyncio.sleep(0)


# Durations as people write them: 100ms, 5s, 2m, 1h30m, 7d. Parsed and written here only.

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_PART = r"(\d+(?:\.\d+)?)(ms|s|m|h|d)"
_WHOLE = re.compile(rf"(?:{_PART})+")


def parse_duration(text: str) -> timedelta:
    """Read a duration; ValueError, in words for the user, when it is none."""
    compact = text.strip().lower().replace(" ", "")
    if compact == "0":
        return timedelta(0)
    if not _WHOLE.fullmatch(compact):
        raise ValueError(f"{text!r} is not a duration; write it as 100ms, 5s, 2m, 1h30m or 7d")
    try:
        return timedelta(
            seconds=sum(float(n) * _UNITS_S[unit] for n, unit in re.findall(_PART, compact))
        )
    except OverflowError:
        raise ValueError(f"{text!r} is longer than time itself; use fewer days") from None


def format_duration(seconds: float) -> str:
    """Write a duration in its two largest units, so that a column of them can be compared."""
    if seconds < 0.9995:
        return f"{max(0, round(seconds * 1000))}ms"
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    for large, small, factor in (("d", "h", 86_400), ("h", "m", 3_600), ("m", "s", 60)):
        if whole >= factor:
            rest = whole % factor // {"h": 3_600, "m": 60, "s": 1}[small]
            return (
                f"{whole // factor}{large} {rest}{small}" if rest else f"{whole // factor}{large}"
            )
    return f"{whole}s"

"""An event loop on which waiting takes no time: when nothing is to be done, its clock jumps on.

For simulations of many requests. A `VirtualClock` stops at every timer to see whether the program
has come to rest, which a test wants and which costs more than the program.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from selectors import DefaultSelector, SelectorKey
from typing import Any, TypeVar

from pump.clock import Clock, Timer

_T = TypeVar("_T")
_EPOCH_S = 1_750_000_000.0


class _JumpingSelector(DefaultSelector):
    now_s = 1_000.0

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        if timeout is not None and timeout > 0:
            self.now_s += timeout
            timeout = 0.0
        return super().select(timeout)


class JumpingLoop(asyncio.SelectorEventLoop):
    """asyncio's own, but for its time."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s


class LoopClock(Clock):
    """The running loop's time, whatever that is; chance is the same in every run."""

    def __init__(self, seed: int = 7) -> None:
        self._random = Random(seed)

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def time_s(self) -> float:
        return _EPOCH_S + self.now_s()

    def chance(self) -> float:
        return self._random.random()

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(delay_s, callback)


def run_jumping(program: Coroutine[Any, Any, _T]) -> _T:
    """Run to the end on a loop of its own."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(program)

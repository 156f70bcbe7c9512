"""Waiting: who waits for a queue in this process, and from where on a receive has to look.

Told by `Listener`, and by what this process does itself; looks by itself only now and then.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Final

import attrs

from pump.clock import Clock
from pump.errors import GatewayError

from .._kit.leases import Alarm

END: Final = (1 << 63) - 1
"""Behind every message there will be."""
MARGIN_S: Final = 5.0
"""How long a lease or a delay takes to be committed, at most; later ones are found by a scan of
everything."""
WHOLE_EVERY_S: Final = 1.0
_SHARE: Final = 9.0
"""For one part of the time that scans of everything take, there are so many parts without."""
_JITTER: Final = 0.2


@attrs.frozen(eq=False)
class Scan:
    """From where on one receive looks."""

    from_seq: int
    again_seq: int
    since_s: float | None
    """On the server's clock; None for everything that is due."""
    started_at_s: float


@attrs.frozen(kw_only=True)
class Found:
    """What one receive has found."""

    last_seq: int
    """The last fresh one that it leased, 0 for none."""
    last_again: int
    """The last that was ready again."""
    first_left: int | None
    """The first that it found and did not lease."""
    is_all: bool
    """Whether there were no others."""


class _Mark:
    """Below it there is nothing, as far as is known."""

    def __init__(self) -> None:
        self.seq = 0
        self._told: dict[Scan, int] = {}

    def begin(self, scan: Scan) -> None:
        self._told[scan] = END

    def told(self, seq: int) -> None:
        self.seq = min(self.seq, seq)
        for scan, lowest in self._told.items():
            self._told[scan] = min(lowest, seq)

    def failed(self, scan: Scan) -> None:
        self._told.pop(scan, None)

    def end(self, scan: Scan, *, seen: int, left: int) -> None:
        told = self._told.pop(scan, END)
        # Receives overlap: another one may have come further meanwhile, or been told of less; but
        # what this one has left was locked for it.
        self.seq = min(max(self.seq, seen) if told == END else seen, told, left)


class LowWater:
    """Below its marks there is nothing fresh, or nothing that is ready again, as far as is known;
    pure.

    A transaction that someone holds open for half an hour keeps what is deleted, and with it
    every message that a receive from the beginning would step over. What is committed late, or
    comes back, is told with its seq, at its commit, and lowers a mark. What was locked by another
    one when it was looked for, and then not taken, is found by a scan of everything, which takes a
    bounded share of the time.
    """

    def __init__(self) -> None:
        self._fresh, self._again = _Mark(), _Mark()
        self._whole_at_s = 0.0
        self._since_s: float | None = None

    def begin(self, now_s: float, *, is_whole: bool = False) -> Scan:
        """A receive begins; of everything, if it would not wait for what it has not been told."""
        if is_whole or now_s >= self._whole_at_s:
            scan = Scan(0, 0, None, now_s)
        else:
            scan = Scan(self._fresh.seq, self._again.seq, self._since_s, now_s)
        self._fresh.begin(scan)
        self._again.begin(scan)
        return scan

    def told(self, seq: int) -> None:
        """Something fresh was committed, from this seq on."""
        self._fresh.told(seq)

    def told_again(self, seq: int) -> None:
        """Something is ready again, from this seq on."""
        self._again.told(seq)

    def failed(self, scan: Scan) -> None:
        """Nothing is known of what it found."""
        self._fresh.failed(scan)
        self._again.failed(scan)
        self.forget()

    def end(self, scan: Scan, found: Found, *, server_s: float, now_s: float, hears: bool) -> None:
        """A receive has found this."""
        is_all = found.is_all and hears
        left = END if found.first_left is None else found.first_left
        for mark, last_seq, from_seq in (
            (self._fresh, found.last_seq, scan.from_seq),
            (self._again, found.last_again, scan.again_seq),
        ):
            mark.end(scan, seen=END if is_all else max(last_seq + 1, from_seq), left=left)
        self._since_s = server_s - MARGIN_S
        if scan.since_s is None:
            least_s = WHOLE_EVERY_S if hears else 0.0
            self._whole_at_s = now_s + max(least_s, _SHARE * (now_s - scan.started_at_s))

    def forget(self) -> None:
        """Look at everything next."""
        self._fresh.seq = self._again.seq = 0
        self._whole_at_s, self._since_s = 0.0, None


class Kind(Enum):
    """What is waited for."""

    MESSAGE = "message"
    """Any message of the queue: one of those who wait is woken at a time."""
    SESSION = "session"
    """The next free session: the same."""
    OWN = "own"
    """A session by its id, or a message in one: all are woken, only they know whom it concerns."""


class QueueWaiters:
    """Those who wait for one queue in this process."""

    def __init__(self, clock: Clock, *, poll_s: Callable[[], float]) -> None:
        self.low_water = LowWater()
        self.queue_id: int | None = None
        """By which it is told of; None before the first receive."""
        self.change_count = 0
        """Changes whenever there is a reason to look."""
        self._clock = clock
        self._poll_s = poll_s
        self._waiting: dict[Kind, deque[asyncio.Future[bool]]] = {kind: deque() for kind in Kind}
        self._alarm = Alarm(clock, self._ring)

    async def wait(self, kind: Kind, wait_s: float) -> bool:
        """Wait for a reason to look again; False when there was none for so long. Raises
        `ConnectionFailed` when nothing would be told any more.
        """
        waiters = self._waiting[kind]
        woken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        timer = self._clock.call_later(wait_s, lambda: _wake(woken, False))
        waiters.append(woken)
        self._arm()
        try:
            return await woken
        except asyncio.CancelledError:
            # Woken, then cancelled before it could look: the reason is another one's now.
            if woken.done() and not woken.cancelled():
                self.wake(kind)
            raise
        finally:
            timer.cancel()
            if woken in waiters:
                waiters.remove(woken)

    def told(self, what: str) -> None:
        """What the function `tell` says: a seq, `-` and a seq, `-`, or `+` and seconds."""
        if what.startswith("+"):
            self.due_in(float(what[1:]))
            return
        if what.startswith("-"):
            self.low_water.told_again(int(what[1:] or 0))
        else:
            self.low_water.told(int(what))
        self.notify()

    def due_in(self, delay_s: float | None) -> None:
        """Something will be ready then."""
        if delay_s is not None:
            self._alarm.ring_by(self._clock.now_s() + delay_s)

    def notify(self) -> None:
        """Something may be ready: have one look for messages, one for sessions, and the others."""
        self.change_count += 1
        for kind in Kind:
            self.wake(kind)

    def wake(self, kind: Kind) -> None:
        """Have one of these look, or all where only they know whom it concerns."""
        waiters = self._waiting[kind]
        while waiters:
            if _wake(waiters.popleft(), True) and kind is not Kind.OWN:
                return

    def fail(self, error: GatewayError) -> None:
        """Nothing is told any more: whoever waits is told that."""
        self.low_water.forget()
        self.change_count += 1
        for waiters in self._waiting.values():
            while waiters:
                woken = waiters.popleft()
                if not woken.done():
                    woken.set_exception(error)

    def close(self) -> None:
        """Whoever waits has waited long enough."""
        self._alarm.cancel()
        for waiters in self._waiting.values():
            while waiters:
                _wake(waiters.popleft(), False)

    def _arm(self) -> None:
        poll_s = self._poll_s() * (1 + _JITTER * self._clock.chance())
        self._alarm.ring_by(self._clock.now_s() + poll_s)

    def _ring(self) -> None:
        if any(self._waiting.values()):
            self.notify()
        if any(self._waiting.values()):
            self._arm()


def _wake(woken: asyncio.Future[bool], result: bool) -> bool:
    if woken.done():
        return False
    woken.set_result(result)
    return True

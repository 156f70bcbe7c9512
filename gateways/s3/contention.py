"""Contention: how often processes commit to one head, and how often in vain. Pure arithmetic.

A process does one commit at a time; what comes meanwhile shares the next one. Where several write
the same head, a write that finds another's in its place is refused, and costs a read and another
write. What each does slows the others down, so the numbers are found by going round until they no
longer change.
"""

from __future__ import annotations

from math import exp

import attrs

_ROUNDS = 200
_STEP = 0.2
"""Each round goes a part of the way, or the numbers would swing."""


@attrs.frozen(kw_only=True)
class Loops:
    """Receive loops of one process: take, work, settle, again and again."""

    processes: int
    loops: int
    """In each process."""
    work_s: float
    """From a take to its settlement: reading what was taken, and handling it."""
    latency_s: float


@attrs.frozen(kw_only=True)
class Committing:
    """How it goes in the long run."""

    cycle_s: float
    """How long a loop takes from one take to the next."""
    commits_a_cycle: float
    """Of a process."""
    vain: float
    """Writes that are refused, a commit; each is followed by a read."""


def settle_down(loops: Loops) -> Committing:
    """Where committing and waiting for commits come to rest."""
    latency_s = loops.latency_s
    commit_rate = 1 / (loops.work_s + 2 * latency_s)
    vain = 0.0
    for _ in range(_ROUNDS):
        commit_s = latency_s * (1 + 2 * vain)
        cycle_s = _cycle_s(loops, commit_s, commit_rate)
        found = _commit_rate(loops, commit_s, calls=2 * loops.loops / cycle_s)
        # One write of the head at a time, and whoever wrote it hears of it a latency later.
        found = min(found, 1 / (loops.processes * latency_s))
        commit_rate += _STEP * (found - commit_rate)
        vain += _STEP * (_vain(loops, commit_rate) - vain)
    cycle_s = _cycle_s(loops, latency_s * (1 + 2 * vain), commit_rate)
    return Committing(cycle_s=cycle_s, commits_a_cycle=commit_rate * cycle_s, vain=vain)


def _cycle_s(loops: Loops, commit_s: float, commit_rate: float) -> float:
    """A call that finds a commit under way waits for half of it, then for its own."""
    busy = min(1.0, commit_rate * commit_s) if loops.loops > 1 else 0.0
    return loops.work_s + 2 * commit_s * (1 + busy / 2)


def _commit_rate(loops: Loops, commit_s: float, calls: float) -> float:
    """Commits a second: after one there is a pause only if no other call came meanwhile."""
    others = calls * (loops.loops - 1) / loops.loops
    pause_s = max(0.0, 1 / calls - commit_s / loops.loops)
    return 1 / (commit_s + exp(-others * commit_s) * pause_s)


def _vain(loops: Loops, commit_rate: float) -> float:
    """The first write is refused if another committed since our last commit, a further one if
    another did within a latency; never more than all the others get in between two of ours.
    """
    others = (loops.processes - 1) * commit_rate
    between_s = 1 / commit_rate
    # A loop that is alone takes right after it has settled, and settles long after.
    gaps_s = (between_s, between_s)
    if loops.loops == 1:
        gaps_s = (loops.latency_s, max(0.0, 2 * between_s - loops.latency_s))
    first = sum(1 - exp(-others * gap_s) for gap_s in gaps_s) / 2
    again = exp(others * loops.latency_s)
    return min(first * again, loops.processes - 1)

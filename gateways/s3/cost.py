"""Cost: how many requests a queue makes for given settings, and what they cost. Pure arithmetic.

What is assumed of the traffic: messages come at a steady pace from one process that sends, and are
consumed as they come. Nothing fails, so no message is delivered twice. The tests hold the two
layouts to requests that were counted.

| request | what is billed                                                                  |
|---------|---------------------------------------------------------------------------------|
| PUT     | also when its condition is refused                                              |
| LIST    | as much as a PUT                                                                |
| GET     | a twelfth of that; HEAD, and "not modified", the same                           |
| DELETE  | nothing                                                                         |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from math import ceil, exp, floor, pow

import attrs

from pump.errors import ConfigurationError

# Contention: how often processes commit to one head, and how often in vain. Pure arithmetic.
#
# A process does one commit at a time; what comes meanwhile shares the next one. Where several write
# the same head, a write that finds another's in its place is refused, and costs a read and another
# write. What each does slows the others down, so the numbers are found by going round until they no
# longer change.

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
        # One write of the head at a time; its writer learns of it a latency later.
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


class Design(StrEnum):
    """What is estimated: the two layouts, and what they are compared with."""

    LEASES = "leases"
    LOG = "log"
    NAIVE = "naive"
    """An object and a lease a message, one request for each step."""
    SQS = "sqs"
    """A standard queue of SQS."""


@attrs.frozen(kw_only=True)
class S3Prices:
    """Dollars. Storage is left out: a million messages of 1 KB for a day are a tenth of a cent."""

    puts_1000: float = 0.005
    lists_1000: float = 0.005
    gets_1000: float = 0.0004
    deletes_1000: float = 0.0
    sqs_million: float = 0.40
    source: str = "list prices of us-east-1, S3 Standard and SQS standard, 2025"


def _check(condition: bool, field: str, value: object, remedy: str) -> None:
    if not condition:
        raise ConfigurationError(f"Workload.{field}", value, remedy)


@attrs.frozen(kw_only=True)
class Workload:
    """Messages, their senders and consumers, and how far away the store is."""

    messages: int = 1_000_000
    batch: int = 10
    """Messages a call of send. Sends under way at once share writes besides: not counted here."""
    consumers: int = 10
    """Messages handled at once, in all processes together."""
    processes: int = 1
    receive: int = 10
    """Messages a receive may bring."""
    handler_s: float = 0.1
    lease_s: float = 30.0
    rate: float | None = None
    """Messages a second; None for as many as the consumers manage."""
    latency_s: float = 0.03
    """What a request takes."""
    poll_s: float = 1.0
    idle_s: float = 0.0
    """How long the consumers wait for messages beside."""
    body_bytes: int = 1_000

    def __attrs_post_init__(self) -> None:
        for field in ("messages", "batch", "consumers", "processes", "receive", "body_bytes"):
            _check(getattr(self, field) >= 1, field, getattr(self, field), "use 1 or more")
        for field in ("lease_s", "latency_s", "poll_s"):
            _check(getattr(self, field) > 0, field, getattr(self, field), "use more than 0")
        for field in ("handler_s", "idle_s"):
            _check(getattr(self, field) >= 0, field, getattr(self, field), "use 0 or more")
        _check(self.rate is None or self.rate > 0, "rate", self.rate, "use more than 0")
        remedy = f"use at most {self.consumers}: a process without a consumer consumes nothing"
        _check(self.processes <= self.consumers, "processes", self.processes, remedy)

    @property
    def pace(self) -> float:
        """Messages a second. A consumer waits for its claim and its ack too."""
        most = self.consumers / (self.handler_s + 2 * self.latency_s)
        return most if self.rate is None else min(self.rate, most)

    @property
    def duration_s(self) -> float:
        """How long all of them take."""
        return self.messages / self.pace

    @property
    def renewals(self) -> int:
        """How often the lease of one message is extended: whenever half of it is over."""
        return floor(self.handler_s / (self.lease_s / 2))


@attrs.frozen
class Requests:
    """How many of each kind; SQS's calls are a kind of their own."""

    puts: float = 0.0
    lists: float = 0.0
    gets: float = 0.0
    deletes: float = 0.0
    sqs: float = 0.0

    def __add__(self, other: Requests) -> Requests:
        pairs = zip(attrs.astuple(self), attrs.astuple(other), strict=True)
        return Requests(*(mine + theirs for mine, theirs in pairs))

    @property
    def billable(self) -> float:
        """All that cost something."""
        return self.puts + self.lists + self.gets + self.sqs

    def dollars(self, prices: S3Prices) -> float:
        """What they cost."""
        thousands = (
            self.puts * prices.puts_1000
            + self.lists * prices.lists_1000
            + self.gets * prices.gets_1000
            + self.deletes * prices.deletes_1000
        )
        return thousands / 1000 + self.sqs * prices.sqs_million / 1e6


@attrs.frozen
class CostPart:
    """One thing that is done, with the requests for it."""

    name: str
    requests: Requests


@attrs.frozen(kw_only=True)
class Estimate:
    """What a design asks of the store for a workload."""

    design: Design
    messages: int
    parts: tuple[CostPart, ...]

    @property
    def total(self) -> Requests:
        """All parts."""
        return sum((part.requests for part in self.parts), start=Requests())

    @property
    def per_message(self) -> float:
        """Billable requests a message."""
        return self.total.billable / self.messages

    def dollars_a_million(self, prices: S3Prices) -> float:
        """For a million messages like these."""
        return self.total.dollars(prices) / self.messages * 1e6


def estimate(design: Design, workload: Workload) -> Estimate:
    """Requests by what they are for."""
    parts = _PARTS[design](workload)
    kept = tuple(part for part in parts if part.requests != Requests())
    return Estimate(design=design, messages=workload.messages, parts=kept)


_OBJECT_MESSAGES = 100
_OBJECT_BYTES = 1024 * 1024
_SEGMENT_BYTES = 8 * 1024 * 1024
_PAGE = 1000
_SHARED_RECEIVE = 10
"""How many messages a receive claims at most where processes share a queue; a listing each."""
_FIRST_POLL_S = 0.1
_FACTS_S = 60.0
"""How often a process reads what its queue is like."""
_SQS_BATCH = 10
_SQS_CHUNK_BYTES = 64 * 1024
_SQS_POLL_S = 20.0


def _leases(w: Workload) -> tuple[CostPart, ...]:
    together = max(1, min(w.batch, _OBJECT_MESSAGES, _OBJECT_BYTES // w.body_bytes))
    objects = w.messages / together
    # Each reads what it gets a part of, and half of what others were about to empty.
    readers = (_readers(w, together) + min(w.processes, together)) / 2
    vain = w.messages * _vain_claims(w)
    around = w.messages / min(w.receive, _SHARED_RECEIVE) if w.processes > 1 else 0.0
    return (
        CostPart("send", Requests(puts=2 * objects)),
        CostPart("find", Requests(lists=w.processes * objects / _PAGE + _looks(w))),
        CostPart("read", Requests(gets=objects * readers)),
        CostPart("claim", Requests(puts=w.messages, gets=w.messages / min(w.receive, together))),
        CostPart("renew", Requests(puts=w.messages * w.renewals)),
        CostPart("settle", Requests(puts=w.messages)),
        CostPart("contend", Requests(puts=vain, lists=around, gets=vain / together)),
        # A batch goes at once, and again with its leases when no copy of it can come any more.
        CostPart("clean up", Requests(deletes=3 * objects)),
        CostPart("settings", Requests(gets=_facts(w))),
        CostPart("idle", Requests(lists=w.processes * w.idle_s / w.poll_s)),
    )


def _log(w: Workload) -> tuple[CostPart, ...]:
    together = max(1, min(w.batch, _SEGMENT_BYTES // w.body_bytes))
    segments = w.messages / together
    found = settle_down(_loops(w, together))
    commits = w.messages / w.consumers * w.processes * found.commits_a_cycle
    renewals = w.messages / w.consumers * w.processes * w.renewals
    vain = (commits + renewals) * found.vain
    if w.rate is not None:
        # The sender commits behind what the consumers have committed since it last did.
        vain += segments
    return (
        CostPart("send", Requests(puts=2 * segments)),
        CostPart("read", Requests(gets=segments * _readers(w, together))),
        CostPart("claim and settle", Requests(puts=commits)),
        CostPart("renew", Requests(puts=renewals)),
        CostPart("contend", Requests(puts=vain, gets=vain)),
        CostPart("follow", Requests(gets=_looks(w))),
        CostPart("clean up", Requests(deletes=segments)),
        CostPart("settings", Requests(gets=_facts(w))),
        CostPart("idle", Requests(gets=w.processes * w.idle_s / w.poll_s)),
    )


def _loops(w: Workload, together: int) -> Loops:
    own = w.consumers / w.processes
    taken = min(w.receive, own)
    # A segment is read once by a process, by the first receive that needs it; several side by side.
    reads = min(1.0, taken * _readers(w, together) / together)
    return Loops(
        processes=w.processes,
        loops=ceil(own / w.receive),
        work_s=w.handler_s + reads * w.latency_s,
        latency_s=w.latency_s,
    )


def _readers(w: Workload, together: int) -> float:
    """How many processes get a part of what was sent together."""
    return min(w.processes, max(1.0, together / min(w.receive, w.consumers / w.processes)))


def _vain_claims(w: Workload) -> float:
    """Claims a message that another process was quicker with. Counted, not derived: each takes an
    order of its own, and they meet the more often the more they claim at once.
    """
    return 0.016 * (1 - 1 / w.processes) * pow(w.consumers, 0.7)


def _looks(w: Workload) -> float:
    """Polls while messages come more slowly than the consumers could take them: after each that
    came, soon, and then less and less often.
    """
    if w.rate is None:
        return 0.0
    gap_s, pause_s, looks = w.batch / w.pace, min(_FIRST_POLL_S, w.poll_s), 1
    while gap_s > pause_s < w.poll_s:
        gap_s, pause_s, looks = gap_s - pause_s, min(2 * pause_s, w.poll_s), looks + 1
    return w.processes * w.messages / w.batch * (looks + gap_s / w.poll_s)


def _facts(w: Workload) -> float:
    return w.processes * (w.duration_s + w.idle_s) / _FACTS_S


def _naive(w: Workload) -> tuple[CostPart, ...]:
    return (
        CostPart("send", Requests(puts=w.messages)),
        CostPart("find", Requests(lists=w.consumers * w.messages / _PAGE)),
        CostPart("claim", Requests(puts=w.messages)),
        CostPart("read", Requests(gets=w.messages)),
        CostPart("renew", Requests(puts=w.messages * w.renewals)),
        CostPart("settle", Requests(deletes=2 * w.messages)),
        CostPart("idle", Requests(lists=w.consumers * w.idle_s / w.poll_s)),
    )


def _sqs(w: Workload) -> tuple[CostPart, ...]:
    chunks = -(-w.body_bytes // _SQS_CHUNK_BYTES)
    sent, taken = min(w.batch, _SQS_BATCH), min(w.receive, _SQS_BATCH)
    return (
        CostPart("send", Requests(sqs=w.messages * max(1 / sent, chunks / sent))),
        CostPart("claim", Requests(sqs=w.messages / taken * chunks)),
        CostPart("renew", Requests(sqs=w.messages / taken * w.renewals)),
        CostPart("settle", Requests(sqs=w.messages / taken)),
        CostPart("idle", Requests(sqs=w.processes * w.idle_s / _SQS_POLL_S)),
    )


_PARTS: Mapping[Design, Callable[[Workload], tuple[CostPart, ...]]] = {
    Design.LEASES: _leases,
    Design.LOG: _log,
    Design.NAIVE: _naive,
    Design.SQS: _sqs,
}

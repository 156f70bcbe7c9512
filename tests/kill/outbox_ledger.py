"""The ledger of the outbox's kill tests, kept by a process that is not killed, and its judgement.

A *unit* is a batch that one relay has: what it sent for a destination between taking rows and
knowing that they are gone. What it sent may be sent again by another where it was cut short, and
a cut has a cause: its relay was killed, the server crashed, or the broker's answer was lost.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from typing import Any

import attrs


@attrs.frozen
class Intent:
    """A message that a life was about to post, with a row of the same name."""

    life: int
    group: str | None
    place: int
    """Its place in the group."""


@attrs.define(eq=False)
class Unit:
    """A batch that one relay has."""

    life: int
    queue: str
    ids: list[str] = attrs.field(factory=list)
    is_settled: bool = False
    cut_by: str = ""


@attrs.define
class Ledger:
    """What lives announced, what the broker accepted, and what was done to them."""

    intents: dict[str, Intent] = attrs.field(factory=dict)
    told: dict[str, str] = attrs.field(factory=dict)
    """The answer to a commit or a rollback, where a life lived to hear it."""
    arrivals: list[tuple[str, Unit]] = attrs.field(factory=list)
    arrived: set[str] = attrs.field(factory=set)
    kills: Counter[str] = attrs.field(factory=Counter)
    """By what the process was at."""
    crashes: Counter[str] = attrs.field(factory=Counter)
    """Of the server, by how."""
    is_crashing: bool = False
    effects: list[str] | None = None
    """What handlers have written, in the same database, where there are any: then it is this that
    counts, and not what the broker accepted."""
    _waiting: set[str] = attrs.field(factory=set)
    _open: dict[tuple[int, str], Unit] = attrs.field(factory=dict)
    _units: list[Unit] = attrs.field(factory=list)

    @property
    def waiting_count(self) -> int:
        """How many messages of transactions that are known to have committed are on their way."""
        return len(self._waiting)

    def intend(self, life: int, orders: Iterable[tuple[str, str | None, int]]) -> None:
        """A life is about to begin a transaction with these."""
        for id_, group, place in orders:
            assert id_ not in self.intents, f"{id_} is a name that was given twice"
            self.intents[id_] = Intent(life, group, place)

    def tell(self, ids: Collection[str], how: str) -> None:
        """A life was told what became of them."""
        self.told |= dict.fromkeys(ids, how)
        if how == "committed":
            self._waiting |= set(ids) - self.arrived

    # Relays.

    def take(self, life: int, queue: str) -> None:
        """A relay has rows of a destination."""
        unit = Unit(life, queue, cut_by="a crash" if self.is_crashing else "")
        self._open[life, queue] = unit
        self._units.append(unit)

    def accept(self, life: int, queue: str, ids: Iterable[str]) -> None:
        """The broker has accepted messages."""
        unit = self._open[life, queue]
        for id_ in ids:
            unit.ids.append(id_)
            self.arrivals.append((id_, unit))
            self.handle(id_)

    def handle(self, id_: str) -> None:
        """A message is where it was to arrive."""
        self.arrived.add(id_)
        self._waiting.discard(id_)

    def settle(self, life: int, queue: str) -> None:
        """A relay knows that its rows are gone; where the broker did not answer, they are not."""
        unit = self._open.pop((life, queue))
        unit.is_settled = unit.cut_by != "the broker"

    def fault(self, life: int, queue: str) -> None:
        """The broker did not answer a relay, or refused it."""
        self._open[life, queue].cut_by = "the broker"

    # What is done to them.

    def kill(self, life: int, phase: str) -> None:
        """A life was killed."""
        self.kills[phase] += 1
        self.end(life, "a kill")

    def end(self, life: int, cause: str) -> None:
        """A life is over."""
        for at in [at for at in self._open if at[0] == life]:
            unit = self._open.pop(at)
            unit.cut_by = unit.cut_by or cause

    def begin_crash(self, how: str) -> None:
        """From now on the server crashes, until `end_crash`: what relays have meanwhile is cut."""
        self.crashes[how] += 1
        self.is_crashing = True
        for unit in self._open.values():
            unit.cut_by = unit.cut_by or "a crash"

    def end_crash(self) -> None:
        """The server is back, and everything was read that was said before."""
        self.is_crashing = False

    # Judgement.

    @property
    def cut_count(self) -> int:
        """Units that were cut short after the broker had accepted some of their messages."""
        return sum(bool(each.ids) and not each.is_settled for each in self._units)

    @property
    def double_count(self) -> int:
        """Messages that the broker accepted more than once, each counted as often."""
        return len(self.arrivals) - len({id_ for id_, _ in self.arrivals})

    def complaints(self, committed: Collection[str]) -> list[str]:
        """What must not be, given the rows that the database has in the end."""
        arrived = self.arrived if self.effects is None else set(self.effects)
        found = {
            "lost": set(committed) - arrived,
            "of no committed transaction": arrived - set(committed),
            "said to be committed, and not there": self._told("committed") - set(committed),
            "said to be rolled back, and there": self._told("rolled back") & set(committed),
            "sent twice, and no batch was cut short": self._doubled(),
            "took effect more than once": _repeated(self.effects or ()),
            "out of order in its group": self._misplaced(),
            "cut short without a cause": {
                f"batch of {each.life} for {each.queue}"
                for each in self._units
                if not (each.is_settled or each.cut_by)
            },
        }
        return [f"{len(ids)} {what}: {sorted(ids)[:5]}" for what, ids in found.items() if ids]

    def _told(self, how: str) -> set[str]:
        return {id_ for id_, told in self.told.items() if told == how}

    def _doubled(self) -> set[str]:
        """Those of two units of which neither was cut short, or twice of one. What a unit sent that
        was cut may be late: after what was sent in its place.
        """
        seen, settled, found = set(), set(), set()
        for id_, unit in self.arrivals:
            if (id_, id(unit)) in seen or (unit.is_settled and id_ in settled):
                found.add(id_)
            seen.add((id_, id(unit)))
            if unit.is_settled:
                settled.add(id_)
        return found

    def _misplaced(self) -> set[str]:
        """By the first arrivals: one that comes again is known by its id."""
        last: defaultdict[str, int] = defaultdict(int)
        seen, found = set(), set()
        for id_, _ in self.arrivals:
            intent = self.intents.get(id_)
            if id_ in seen or intent is None or intent.group is None:
                continue
            seen.add(id_)
            if intent.place <= last[intent.group]:
                found.add(id_)
            last[intent.group] = max(last[intent.group], intent.place)
        return found

    def report(self) -> dict[str, Any]:
        """Figures, for a person."""
        return {
            "kills": dict(self.kills.most_common()),
            "crashes": dict(self.crashes),
            "intended": len(self.intents),
            "accepted": len(self.arrived),
            "doubles": self.double_count,
            "units": len(self._units),
            "cut after acceptance": self.cut_count,
        }


def _repeated(ids: Iterable[str]) -> set[str]:
    return {id_ for id_, times in Counter(ids).items() if times > 1}

"""A queue so naive that it is obviously right: one list, searched from the front each time."""

from __future__ import annotations

import attrs

from gateways._engine.record import EngineSettings


@attrs.define(eq=False)
class Entry:
    seq: int
    id: str
    group: str | None
    attempt: int = 0
    hidden_until_s: float = 0.0
    receipt: str | None = None

    @property
    def is_in_flight(self) -> bool:
        return self.receipt is not None


class ModelQueue:
    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self.entries: list[Entry] = []
        self.dead: list[str] = []
        self.seen: dict[str, float] = {}

    def send(self, entry: Entry, key: str | None, now_s: float) -> bool:
        if key is not None:
            if self.seen.get(key, 0.0) > now_s:
                return False
            self.seen[key] = now_s + self.settings.deduplication_window_s
        self.entries.append(entry)
        return True

    def promote(self, now_s: float) -> None:
        for entry in list(self.entries):
            if entry.is_in_flight and entry.hidden_until_s <= now_s:
                self.give_back(entry, 0.0, now_s)

    def give_back(self, entry: Entry, delay_s: float, now_s: float) -> None:
        limit = self.settings.max_receive_count
        if limit is not None and entry.attempt >= limit:
            self.entries.remove(entry)
            self.dead.append(entry.id)
            return
        entry.receipt = None
        entry.hidden_until_s = now_s + delay_s

    def in_order(self) -> list[Entry]:
        return sorted(self.entries, key=lambda e: e.seq, reverse=self.settings.is_lifo)

    def next_entries(self, max_count: int, now_s: float) -> list[Entry]:
        blocked = {self._domain(e) for e in self.entries if e.is_in_flight}
        taken: list[Entry] = []
        for entry in self.in_order():
            domain = self._domain(entry)
            is_ordered = domain is not None
            if len(taken) == max_count:
                break
            if entry.is_in_flight or (is_ordered and domain in blocked):
                continue
            is_hidden = entry.hidden_until_s > now_s
            if is_hidden or self.settings.is_strict:
                blocked.add(domain)
            if not is_hidden:
                taken.append(entry)
        return taken

    def find(self, receipt: str) -> Entry | None:
        return next((e for e in self.entries if e.receipt == receipt), None)

    def _domain(self, entry: Entry) -> str | None:
        if entry.group is not None:
            return entry.group
        return "(the queue)" if self.settings.is_strict else None

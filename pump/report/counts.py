"""Counts: the answers of one query, taken apart into tables."""

from __future__ import annotations

from typing import Any

from . import queries
from .engine import Rows
from .preparing import Prepared
from .tables import Results

_KEY_COUNT = len(queries.KEYS)
_STATUS_COUNT = 8
"""Deliveries, failed, and one a status."""


class Counts:
    """What `queries.counts` yields."""

    def __init__(self, rows: Rows, prepared: Prepared) -> None:
        self._prepared = prepared
        self._rows: dict[tuple[str, ...], list[tuple[Any, ...]]] = {
            each: [] for each in queries.SETS
        }
        for row in rows:
            flags, rest = row[:_KEY_COUNT], row[_KEY_COUNT:]
            about = tuple(
                key for key, is_absent in zip(queries.KEYS, flags, strict=True) if not is_absent
            )
            self._rows[about].append(rest)

    def tables(self) -> Results:
        """Over time, by type, queue and reason, and by attempt."""
        return {
            "volumes": self._over_time("bucket_us"),
            "volumes_by_type": self._over_time("bucket_us", "type"),
            "volumes_by_queue": self._over_time("bucket_us", "queue"),
            "volumes_by_reason": self._over_time("bucket_us", "reason"),
            "types": self._in_all("type"),
            "queues": self._in_all("queue"),
            "reasons": self._in_all("reason"),
            "attempts": sorted(self._about(("type", "attempt"), self._prepared.span_s)),
        }

    def total(self) -> tuple[Any, ...]:
        """Rows, duplicates, and the counts of everything."""
        # Without a row some engines yield no group either.
        found = self._about((), self._prepared.span_s)
        counts: tuple[Any, ...] = found[0] if found else (*[0] * _STATUS_COUNT, None, 0.0)
        raw_count = self._prepared.raw_count
        return (raw_count, raw_count - counts[0] - counts[7], *counts)

    def _over_time(self, *keys: str) -> Rows:
        return sorted(self._about(keys, self._prepared.bucket_us / 1e6))

    def _in_all(self, key: str) -> Rows:
        rows = self._about((key,), self._prepared.span_s, with_seen=True)
        return sorted(rows, key=lambda row: (-row[1], row[0]))

    def _about(self, keys: tuple[str, ...], span_s: float, *, with_seen: bool = False) -> Rows:
        """Keys, counts and rates of one set; a group without a reason is none."""
        places = [queries.KEYS.index(key) for key in keys]
        rows = []
        for row in self._rows[keys]:
            named = [row[place] for place in places]
            statuses = [int(each) for each in row[_KEY_COUNT : _KEY_COUNT + _STATUS_COUNT]]
            deliveries, failed = statuses[:2]
            failure_rate = failed / deliveries if deliveries else None
            seen = row[-2:] if with_seen else ()
            if None not in named:
                rows.append((*named, *statuses, failure_rate, deliveries / span_s, *seen))
        return rows

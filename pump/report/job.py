"""Analysis: asks an engine for every table of the report, and puts the answers in order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from . import queries
from .engine import Rows, SqlEngine
from .fingerprint import normalised
from .queries import PreparedTables, prepare
from .tables import BY_NAME, Results, ValueKind

Progress = Callable[[str], None]
_SEPARATOR = "\x1f"
_MAX_NAMES = 5
"""So many types, queues or reasons of a cluster are named."""


def analyse(engine: SqlEngine, *, has_dead_letters: bool, progress: Progress) -> Results:
    """Every table but the snapshot, each in an order that does not depend on the engine."""
    progress("reading the ledger")
    prepared = prepare(engine)
    progress("counting")
    counts = FoundCounts(engine.rows(queries.counts()), prepared)
    results = counts.tables()
    progress("following messages")
    results["messages"] = sorted(engine.rows(queries.messages(engine.dialect)), key=_by_count)
    progress("measuring times")
    results |= _latency(engine, prepared)
    progress("comparing failures")
    cluster_count, results["clusters"] = _clusters(engine)
    results["poison"] = _poison(engine)
    dead_letter_count, results["dead_letter_groups"] = (
        _dead_letters(engine) if has_dead_letters else (0, [])
    )
    results["seen"] = _seen(results)
    messages = results["messages"]
    results["totals"] = [
        (
            *counts.total(),
            sum(row[1] for row in messages),
            sum(row[7] for row in messages),
            _type_count(engine),
            len(results["queues"]),
            cluster_count,
            dead_letter_count,
            prepared.bucket_us / 1e6,
            prepared.first_us,
            prepared.last_us,
        )
    ]
    return {name: _typed(name, results[name]) for name in BY_NAME}


def _latency(engine: SqlEngine, prepared: PreparedTables) -> Results:
    rows = engine.rows(queries.latency(prepared.bucket_us))
    by_type = [row for row in rows if row[0] != queries.OVER_TIME]
    over_time = [(int(row[1]), *row[2:]) for row in rows if row[0] == queries.OVER_TIME]
    return {
        "latency": sorted(
            by_type,
            key=lambda row: (row[0] != "run_s", row[1] != queries.ALL_TYPES, -row[2], row[1]),
        ),
        "latency_over_time": sorted(over_time),
    }


def _type_count(engine: SqlEngine) -> int:
    counts = engine.rows("SELECT max(type_count) FROM known_types")
    return counts[0][0] or 0


def _clusters(engine: SqlEngine) -> tuple[int, Rows]:
    engine.keep("top_clusters", queries.top_clusters(engine.dialect))
    top = engine.rows(
        "SELECT fingerprint, n, messages, cluster_count, text_count FROM top_clusters"
    )
    parts: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for fingerprint, *part in engine.rows(queries.CLUSTER_PARTS) if top else ():
        parts[fingerprint].append(tuple(part))
    rows = []
    for fingerprint, n, messages, _, text_count in top:
        pattern, *rest = _cluster(parts[fingerprint])
        rows.append((fingerprint, pattern, n, int(n) / int(text_count), messages, *rest))
    ordered = sorted(rows, key=lambda row: (-row[2], row[0]))
    return (top[0][3] if top else 0), ordered


def _cluster(parts: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    example = min(part[8] for part in parts if part[8] is not None)
    message_id, _, text = example.partition(_SEPARATOR)
    types, queues, reasons, errors, statuses = (
        _counts((part[at], part[5]) for part in parts) for at in range(5)
    )
    return (
        normalised(text),
        statuses["dead-lettered"] + statuses["discarded"],
        _named(errors),
        _named(types),
        _named(queues),
        _named(reasons),
        min(part[6] for part in parts),
        max(part[7] for part in parts),
        text,
        message_id,
    )


def _counts(pairs: Iterable[tuple[str | None, int]]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for name, count in pairs:
        if name is not None:
            counts[name] += count
    return counts


def _named(counts: Counter[str]) -> str:
    names = sorted(counts, key=lambda name: (-counts[name], name))
    more = len(names) - _MAX_NAMES
    return ", ".join([*names[:_MAX_NAMES], *([f"and {more} more"] if more > 0 else [])])


def _poison(engine: SqlEngine) -> Rows:
    engine.keep("poison", queries.POISON)
    found = engine.rows(queries.POISON_ROWS)
    if not found:
        return []
    ends = {message_id: rest for message_id, *rest in engine.rows(queries.POISON_ENDS)}
    rows = []
    for message_id, type_, failures, attempts, dead_lettered, *seen, example in found:
        last, redriven = ends[message_id]
        queue, _, rest = example.partition(_SEPARATOR)
        fingerprint, _, text = rest.partition(_SEPARATOR)
        told = (failures, attempts, dead_lettered, redriven, queries.status_of_code(last))
        rows.append((message_id, type_, queue, *told, *seen, fingerprint or None, text or None))
    return sorted(rows, key=lambda row: (-row[5], -row[4], -row[3], row[0]))


def _dead_letters(engine: SqlEngine) -> tuple[int, Rows]:
    found = engine.rows(queries.DEAD_LETTER_GROUPS)
    rows = []
    for *group, n, attempts, oldest, newest, example, _ in found:
        message_id, _, text = example.partition(_SEPARATOR)
        pattern = normalised(text) if text else None
        rows.append((*group, pattern, n, attempts, oldest, newest, text or None, message_id))
    total = found[0][-1] if found else 0
    return total, sorted(rows, key=lambda row: (-row[6], *map(str, row[:5])))


def _seen(results: Results) -> Rows:
    tables = (("type", "types"), ("queue", "queues"), ("reason", "reasons"))
    # A row `redriven` is seen as well.
    rows = [
        (kind, row[0], row[1] + row[8], row[-2], row[-1])
        for kind, table in tables
        for row in results[table]
    ]
    rows += [("fingerprint", row[0], row[2], row[10], row[11]) for row in results["clusters"]]
    return rows


def _by_count(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return -row[1], row[0]


def _typed(name: str, rows: Rows) -> Rows:
    """The same types of numbers, whichever engine they come from."""
    kinds = [column.kind for column in BY_NAME[name].columns]
    return [
        tuple(_value(value, kind) for value, kind in zip(row, kinds, strict=True)) for row in rows
    ]


def _value(value: Any, kind: ValueKind) -> Any:
    if value is None:
        return None
    match kind:
        case ValueKind.TEXT:
            return str(value)
        case ValueKind.COUNT | ValueKind.TIME:
            return int(value)
        case _:
            return float(value)


# Counts: the answers of one query, taken apart into tables.

_KEY_COUNT = len(queries.KEYS)
_STATUS_COUNT = 8
"""Deliveries, failed, and one a status."""


class FoundCounts:
    """What `queries.counts` yields."""

    def __init__(self, rows: Rows, prepared: PreparedTables) -> None:
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

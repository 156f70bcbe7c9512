"""Job: one report, from a ledger to a folder with tables and a page."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attrs

from ..clock import SYSTEM_CLOCK, Clock
from ..errors import ConfigurationError, StorageFailed
from ..stores.ledger.rows import translated
from . import queries
from .engine import EngineFailed, MakeEngine, Rows, SqlEngine
from .fingerprint import normalised
from .queries import PreparedTables, prepare
from .source import ReportScope, Skipped, Source, ledger_source, no_ledger, without_damaged
from .tables import BY_NAME, SNAPSHOT, TABLES, Results, ValueKind

# Analysis: asks an engine for every table of the report, and puts the answers in order.

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


@attrs.frozen(kw_only=True)
class ReportOptions:
    """What to report on, and where to."""

    out: Path
    """A folder: made when it is not there, and refused when others' files are in it."""
    ledger: str | Path | None = None
    """A path or a URL; None leaves outcomes out."""
    dead_letters: Path | None = None
    """A snapshot that `take_snapshot` wrote."""
    scope: ReportScope = ReportScope()
    force: bool = False
    """Write into the folder whatever else is in it."""


@attrs.frozen(kw_only=True)
class Report:
    """What was found and written."""

    page: Path
    results: Results = attrs.field(repr=False)
    skipped: tuple[Skipped, ...]
    timings: dict[str, float]
    """Seconds for `read` (find the files, gather what is in journals), `analyse`, `write` and
    `total`."""

    @property
    def totals(self) -> dict[str, float | int | None]:
        """The one row of the table `totals`, by the names of its columns."""
        names = [column.name for column in BY_NAME["totals"].columns]
        return dict(zip(names, self.results["totals"][0], strict=True))


def run_report(
    options: ReportOptions,
    make_engine: MakeEngine,
    *,
    progress: Progress = lambda step: None,
    clock: Clock = SYSTEM_CLOCK,
) -> Report:
    """Make the report with an engine, such as `duckdb_engine`. Blocking.

    Files of the ledger that are damaged, or not the ledger's, are named in the result and on the
    page. `ConfigurationError` for a folder or a ledger that cannot be used; `StorageFailed` when
    the engine gives up, though every file is sound.
    """
    _check_installed()
    claim(options.out, force=options.force)
    started_s = clock.now_s()
    with tempfile.TemporaryDirectory(prefix=WORK_PREFIX, dir=options.out) as folder:
        scratch = Path(folder)
        progress("looking for files")
        source = _source(options, scratch)
        read_s = clock.now_s()
        source, name, results = _analysed(source, options, make_engine, progress)
        analysed_s = clock.now_s()
        progress("writing")
        heading = Heading(
            ledger=None if options.ledger is None else str(options.ledger),
            engine=name,
            scope=options.scope,
            made_at_s=clock.time_s(),
            skipped=source.skipped,
        )
        page = publish(results, heading, options.out, scratch, options.dead_letters)
    ended_s = clock.now_s()
    timings = {
        "read": read_s - started_s,
        "analyse": analysed_s - read_s,
        "write": ended_s - analysed_s,
        "total": ended_s - started_s,
    }
    return Report(page=page, results=results, skipped=source.skipped, timings=timings)


def _check_installed() -> None:
    # At once, and not after minutes, when the page is made.
    if find_spec("jinja2") is None:
        raise ConfigurationError("jinja2", "not installed", "try: pip install 'pumphouse[report]'")


def _source(options: ReportOptions, scratch: Path) -> Source:
    if options.ledger is None:
        source = no_ledger(scratch)
    else:
        source = ledger_source(options.ledger, options.scope, scratch)
    return attrs.evolve(source, dead_letters=options.dead_letters)


def _analysed(
    source: Source, options: ReportOptions, make_engine: MakeEngine, progress: Progress
) -> tuple[Source, str, Results]:
    try:
        return _analysed_once(source, options, make_engine, progress)
    except EngineFailed as error:
        progress("looking for damage")
        sound = without_damaged(source)
        if sound.files == source.files:
            where = str(options.ledger or options.dead_letters)
            raise StorageFailed(where, f"the query engine gave up: {error}") from error
    return _analysed_once(sound, options, make_engine, progress)


def _analysed_once(
    source: Source, options: ReportOptions, make_engine: MakeEngine, progress: Progress
) -> tuple[Source, str, Results]:
    with make_engine(source, options.scope) as engine:
        has_dead_letters = source.dead_letters is not None
        results = analyse(engine, has_dead_letters=has_dead_letters, progress=progress)
        return source, engine.name, results


# Output: the folder of a report. Each file appears whole, and the page last.

PAGE = "report.html"
WORK_PREFIX = ".work-"
_MAX_NAMED = 3
_OURS = {PAGE, *(f"{table.name}.parquet" for table in (*TABLES, SNAPSHOT))}


@attrs.frozen(kw_only=True)
class Heading:
    """What a report says about itself."""

    ledger: str | None
    engine: str
    scope: ReportScope
    made_at_s: float
    skipped: tuple[Skipped, ...] = ()


def claim(out: Path, *, force: bool) -> None:
    """Make the folder; `ConfigurationError` when it holds what no report has written."""
    try:
        with translated(out):
            out.mkdir(parents=True, exist_ok=True)
            foreign = sorted(each.name for each in out.iterdir() if not _is_ours(each.name))
    except StorageFailed as error:
        raise ConfigurationError("out", str(out), error.detail) from error
    if foreign and not force:
        named = ", ".join(foreign[:_MAX_NAMED]) + (", …" if len(foreign) > _MAX_NAMED else "")
        raise ConfigurationError(
            "out",
            str(out),
            f"the folder has files of others in it ({named}); name another one, or use --force "
            "to write beside them",
        )


def publish(
    results: Results, heading: Heading, out: Path, scratch: Path, dead_letters: Path | None
) -> Path:
    """Write every table, and then the page, whose path is returned."""
    from .page import rendered
    from .parquet_files import write_table

    with translated(out):
        for table in TABLES:
            path = scratch / f"{table.name}.parquet"
            write_table(table, results[table.name], path)
            os.replace(path, out / path.name)
        _publish_snapshot(out, scratch, dead_letters)
        page = scratch / PAGE
        page.write_text(rendered(results, heading), encoding="utf-8", errors="backslashreplace")
        os.replace(page, out / PAGE)
    return out / PAGE


def _publish_snapshot(out: Path, scratch: Path, dead_letters: Path | None) -> None:
    name = f"{SNAPSHOT.name}.parquet"
    if dead_letters is None:
        # That of an earlier report would not belong to this one.
        (out / name).unlink(missing_ok=True)
        return
    shutil.copyfile(dead_letters, scratch / name)
    os.replace(scratch / name, out / name)


def _is_ours(name: str) -> bool:
    return name in _OURS or name.startswith(WORK_PREFIX)

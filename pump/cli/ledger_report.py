"""The report of `pump ledger`: what to read, and what the counts come to."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import click

from ..clock import SYSTEM_CLOCK
from ..durations import parse_duration
from ..errors import ConfigurationError
from ..stores.ledger.locating import DEFAULT_FILE, DEFAULT_FOLDER, locate, reader_from
from ..stores.ledger.schema import LedgerStatus, Row
from ..stores.ledger.tally import NO_FAILURES, PROCESSED, Query, Tally

_SLOT_LENGTHS_S = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200),
    *(86_400 * days for days in (1, 2, 7, 14, 30, 90, 365)),
)
MAX_SLOTS = 60
SHARES = (0.5, 0.95, 0.99)


@attrs.frozen(kw_only=True)
class Asked:
    """The options of `pump ledger`."""

    path: str | None
    since: str
    queues: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()
    limit: int = 10


@attrs.frozen(kw_only=True)
class Report:
    """What a ledger says about a stretch of time."""

    path: str | None
    """None when no ledger was found."""
    is_empty: bool
    """Whether it has no rows at all, asked for or not."""
    start_us: int
    end_us: int
    query: Query
    tally: Tally
    limit: int

    @property
    def span_s(self) -> float:
        """How long the stretch is."""
        return max((self.end_us - self.start_us) / 1e6, 1.0)

    @property
    def slot_s(self) -> float:
        """How long one slot of `series` is."""
        return self.query.slot_us / 1e6

    def statuses(self) -> dict[str, int]:
        """How often each status was met."""
        counts: Counter[str] = Counter()
        for (_, status, _), count in self.tally.outcomes.items():
            counts[status] += count
        return {status.value: counts[status.value] for status in LedgerStatus}

    def types(self) -> list[tuple[str, Counter[str]]]:
        """Counts by status of each type, the most frequent first."""
        counts: dict[str, Counter[str]] = {}
        for (type_, status, _), count in self.tally.outcomes.items():
            counts.setdefault(type_, Counter())[status] += count
        return sorted(counts.items(), key=lambda each: (-each[1].total(), each[0]))

    def reasons(self) -> list[tuple[tuple[str, str, str], int]]:
        """Type, status and reason of what was not processed, the most frequent first."""
        found = [each for each in self.tally.outcomes.items() if each[0][1] not in NO_FAILURES]
        return sorted(found, key=lambda each: (-each[1], each[0]))

    def handlers(self) -> list[tuple[str, int, list[float]]]:
        """Type, number of runs, and p50, p95, p99 and longest, the slowest first."""
        runs: Counter[str] = Counter()
        for (type_, _), count in self.tally.runs.items():
            runs[type_] += count
        times = [
            (type_, count, [*self.tally.percentiles_s(type_, *SHARES), longest_s])
            for type_, count in runs.items()
            for longest_s in [self.tally.longest_s[type_]]
        ]
        return sorted(times, key=lambda each: (-each[2][1], each[0]))

    def series(self) -> tuple[list[int], list[int]]:
        """Processed and failed, slot by slot."""
        query = self.query
        slots = range((self.end_us - query.origin_us) // query.slot_us + 1)
        processed, failed = Counter[int](), Counter[int]()
        for (slot, status), count in self.tally.slots.items():
            if status == PROCESSED:
                processed[slot] += count
            elif status not in NO_FAILURES:
                failed[slot] += count
        # Rows that a clock ahead of ours has dated in the future count in the last slot.
        return tuple(  # type: ignore[return-value]
            [
                counts[slot] if slot < slots[-1] else sum(counts[at] for at in counts if at >= slot)
                for slot in slots
            ]
            for counts in (processed, failed)
        )


def print_ledger(asked: Asked, *, as_json: bool) -> None:
    """Read a ledger and print what it says."""
    from .console import print_json, print_warning, stdout
    from .ledger_tables import print_report, slot_count

    console = stdout()
    report = make_report(asked, max_slots=MAX_SLOTS if as_json else slot_count(console))
    if as_json:
        print_json(as_document(report))
    else:
        print_report(report, console)
    for path, why in report.tally.skipped[:MAX_SLOTS]:
        print_warning(f"{path} was skipped: {why}")


def make_report(asked: Asked, *, max_slots: int) -> Report:
    """Read the ledger that was asked for."""
    end_us = round(SYSTEM_CLOCK.time_s() * 1e6)
    since_us = since(asked.since, end_us)
    path = _path(asked.path)
    reader = None if path is None else reader_from(path)
    oldest_us = None if reader is None else reader.oldest_us()
    start_us = since_us if oldest_us is None else max(since_us, oldest_us)
    slot_us = _slot_us(max(end_us - start_us, 0), max_slots)
    query = Query(
        since_us=start_us,
        origin_us=start_us - start_us % slot_us,
        slot_us=slot_us,
        max_failures=asked.limit,
        queues=asked.queues,
        types=asked.types,
        reasons=asked.reasons,
        statuses=asked.statuses,
    )
    return Report(
        path=path,
        is_empty=oldest_us is None,
        start_us=start_us,
        end_us=max(end_us, start_us),
        query=query,
        tally=Tally() if reader is None else reader.tally(query),
        limit=asked.limit,
    )


def since(text: str, now_us: int) -> int:
    """What `--since` means."""
    if text == "all":
        return 0
    try:
        return max(0, now_us - parse_duration(text) // timedelta(microseconds=1))
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no duration (1h, 7d), no date (2026-11-16) and not `all`",
            param_hint="--since",
        ) from None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0, round(aware.timestamp() * 1e6))


def as_document(report: Report) -> dict[str, Any]:
    """The report as JSON has it."""
    processed, failed = report.series()
    starts = [report.query.origin_us + n * report.query.slot_us for n in range(len(processed))]
    return {
        "ledger": report.path,
        "since": iso(report.start_us),
        "until": iso(report.end_us),
        "rows": report.tally.row_count,
        "statuses": report.statuses(),
        "types": [
            {"type": type_, "rate_per_s": counts.total() / report.span_s, **_by_status(counts)}
            for type_, counts in report.types()[: report.limit]
        ],
        "reasons": [
            {
                "type": type_,
                "status": status,
                "reason": reason or None,
                "count": count,
                "rate_per_s": count / report.span_s,
            }
            for (type_, status, reason), count in report.reasons()[: report.limit]
        ],
        "handlers": [
            {"type": type_, "runs": runs}
            | dict(zip(("p50_s", "p95_s", "p99_s", "max_s"), times, strict=True))
            for type_, runs, times in report.handlers()[: report.limit]
        ],
        "failures": [_row_document(row) for row in report.tally.failures],
        "slots": {
            "length_s": report.slot_s,
            "counts": [
                {"start": iso(start), "processed": good, "failed": bad}
                for start, good, bad in zip(starts, processed, failed, strict=True)
            ],
        },
        "skipped": [{"path": path, "why": why} for path, why in report.tally.skipped],
    }


def iso(time_us: int) -> str:
    """A moment, in UTC, to the microsecond."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _by_status(counts: Counter[str]) -> dict[str, int]:
    return {status.value: counts[status.value] for status in LedgerStatus}


def _row_document(row: Row) -> dict[str, Any]:
    return {**row._asdict(), "time": iso(row.time)}


def _path(asked: str | None) -> str | None:
    if asked is None:
        found = [path for path in (DEFAULT_FILE, DEFAULT_FOLDER) if path.exists()]
        return str(found[0]) if found else None
    path = locate(asked).path
    if not path.exists():
        raise ConfigurationError(
            "PATH", str(path), f"there is no ledger; start one: pump run app:app --ledger {asked}"
        )
    return asked


def _slot_us(span_us: int, max_slots: int) -> int:
    # Two slots more than that, at most: the first begins at a round moment before the span.
    fitting = [each for each in _SLOT_LENGTHS_S if span_us // (each * 1_000_000) <= max_slots]
    return (fitting[0] if fitting else _SLOT_LENGTHS_S[-1]) * 1_000_000

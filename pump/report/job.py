"""Job: one report, from a ledger to a folder with tables and a page."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import attrs

from ..clock import SYSTEM_CLOCK, Clock
from ..errors import StorageFailed
from .analysis import analyse
from .engine import EngineFailed, MakeEngine
from .output import WORK_PREFIX, Heading, claim, publish
from .scope import Scope
from .source import Skipped, Source, ledger_source, no_ledger, without_damaged
from .tables import BY_NAME, Results

Progress = Callable[[str], None]


@attrs.frozen(kw_only=True)
class ReportOptions:
    """What to report on, and where to."""

    out: Path
    """A folder: made when it is not there, and refused when others' files are in it."""
    ledger: str | Path | None = None
    """A path or a URL; None leaves outcomes out."""
    dead_letters: Path | None = None
    """A snapshot that `take_snapshot` wrote."""
    scope: Scope = Scope()
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

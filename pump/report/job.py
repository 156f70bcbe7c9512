"""Job: one report, from a ledger to a folder with tables and a page."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import attrs

from ..clock import SYSTEM_CLOCK, Clock
from ..errors import ConfigurationError, StorageFailed
from ..stores.ledger.rows import translated
from .analysis import analyse
from .engine import EngineFailed, MakeEngine
from .source import ReportScope, Skipped, Source, ledger_source, no_ledger, without_damaged
from .tables import BY_NAME, SNAPSHOT, TABLES, Results

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

"""Output: the folder of a report. Each file appears whole, and the page last."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import attrs

from ..errors import ConfigurationError, StorageFailed
from ..stores.ledger.row_store import translated
from .scope import Scope
from .source import Skipped
from .tables import SNAPSHOT, TABLES, Results

PAGE = "report.html"
WORK_PREFIX = ".work-"
_MAX_NAMED = 3
_OURS = {PAGE, *(f"{table.name}.parquet" for table in (*TABLES, SNAPSHOT))}


@attrs.frozen(kw_only=True)
class Heading:
    """What a report says about itself."""

    ledger: str | None
    engine: str
    scope: Scope
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

"""Locating: ledgers by path or URL, for the command line and for configuration.

A path that ends in `.db` or `.sqlite`, or is a file, is SQLite; any other is a folder of Parquet.
`sqlite://` and `parquet://` say it outright, and take `?keep=30d` and `?detail=no`.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import attrs

from ...durations import parse_duration
from ...errors import ConfigurationError
from . import Ledger
from .parquet_ledger import ParquetLedger
from .reading import LedgerReader, ParquetReader, SqliteReader
from .sqlite_ledger import SqliteLedger

DEFAULT_FILE = Path(".pumphouse/ledger.db")
DEFAULT_FOLDER = Path(".pumphouse/ledger")
_SQLITE_SUFFIXES = (".db", ".sqlite", ".sqlite3")
_TRUTHS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


@attrs.frozen(kw_only=True)
class Location:
    """Where a ledger is, of which kind, and what was said about it."""

    path: Path
    is_sqlite: bool
    keep: timedelta | None = None
    detail: bool = True


def ledger_from(where: str | Path) -> Ledger:
    """The ledger that a path or a URL names; `ConfigurationError` when it names none.

    `sqlite:///var/lib/shop/ledger.db`, `parquet:///var/lib/shop/ledger?keep=90d`, or a path.
    Two slashes begin a relative path: `parquet://ledger`.
    """
    location = locate(where)
    kind = SqliteLedger if location.is_sqlite else ParquetLedger
    return kind(location.path, keep=location.keep, detail=location.detail)


def reader_from(where: str | Path) -> LedgerReader:
    """What reads the ledger that a path or a URL names."""
    location = locate(where)
    return SqliteReader(location.path) if location.is_sqlite else ParquetReader(location.path)


def locate(where: str | Path) -> Location:
    """Tell path and kind of a ledger that may not be there yet."""
    text = str(where)
    scheme, separator, _ = text.partition("://")
    if isinstance(where, Path) or not separator:
        path = Path(text)
        is_sqlite = _is_sqlite(path)
        return Location(path=path, is_sqlite=is_sqlite)
    if scheme not in ("sqlite", "parquet"):
        raise ConfigurationError("ledger", text, "use a path, sqlite:///file or parquet:///folder")
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise ConfigurationError("ledger", text, f"this is no URL: {error}") from None
    path = Path(unquote(f"{parts.netloc}{parts.path}"))
    if path == Path():
        raise ConfigurationError("ledger", text, f"name a path behind {scheme}://")
    return Location(path=path, is_sqlite=scheme == "sqlite", **_options(text, parts.query))


def _is_sqlite(path: Path) -> bool:
    # A name that is too long, or below what may not be read, is told of when it is opened.
    with suppress(OSError):
        if path.exists():
            return path.is_file()
    return path.suffix.lower() in _SQLITE_SUFFIXES


def _options(url: str, query: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name == "keep":
            options["keep"] = _keep(url, value)
        elif name == "detail" and value.lower() in _TRUTHS:
            options["detail"] = _TRUTHS[value.lower()]
        else:
            raise ConfigurationError(
                "ledger", url, f"{name}={value} is not known here; use keep=30d or detail=no"
            )
    return options


def _keep(url: str, value: str) -> timedelta:
    try:
        return parse_duration(value)
    except ValueError as error:
        raise ConfigurationError("ledger", url, str(error)) from None

"""Arrow: dead letters in Parquet files. Whoever calls needs pyarrow; importing this does not."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import ConfigurationError, StorageFailed
from ..stores.ledger.row_store import translated
from .columns import COLUMNS, Kind

_ROWS_AT_ONCE = 65_536


def schema() -> Any:
    """The Arrow schema of `COLUMNS`."""
    pa = pyarrow()
    types = {
        Kind.TEXT: pa.string(),
        Kind.INTEGER: pa.int64(),
        Kind.TIME: pa.timestamp("us", tz="UTC"),
        Kind.MAP: pa.map_(pa.string(), pa.string()),
    }
    return pa.schema([pa.field(each.name, types[each.kind]) for each in COLUMNS])


class SnapshotWriter:
    """Writes rows into a file that is there, whole and durable, once `finish` has returned.

    Blocking. Without `finish` nothing of that name is there.
    """

    def __init__(self, path: Path) -> None:
        pyarrow()
        import pyarrow.parquet as pq

        self._path = path
        self._temporary = path.with_name(f"_{path.name}.tmp")
        self._schema = schema()
        with written(self._temporary):
            self._file = pq.ParquetWriter(self._temporary, self._schema, compression="zstd")

    def write(self, rows: Sequence[dict[str, Any]]) -> None:
        """Add rows."""
        with written(self._temporary):
            self._file.write_table(pyarrow().Table.from_pylist(list(rows), schema=self._schema))

    def finish(self) -> None:
        """Give the file its name."""
        with written(self._path):
            self._file.close()
            sync(self._temporary)
            os.replace(self._temporary, self._path)
            sync(self._path.parent)

    def discard(self) -> None:
        """Leave nothing behind."""
        with written(self._temporary):
            self._file.close()
            self._temporary.unlink(missing_ok=True)


def columns_in(path: Path, names: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    """The rows of a file, or of a folder of files, part by part, with these columns alone."""
    pyarrow()
    import pyarrow.parquet as pq

    with written(path):
        for file in files_in(path):
            with pq.ParquetFile(file) as opened:
                for batch in opened.iter_batches(batch_size=_ROWS_AT_ONCE, columns=list(names)):
                    yield batch.to_pylist()


def files_in(path: Path) -> Iterable[Path]:
    """The Parquet files that a path means; Spark makes a folder of them."""
    return sorted(path.glob("*.parquet")) if path.is_dir() else [path]


def sync(path: Path) -> None:
    """Have what a file, or a folder's list of names, holds on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def written(path: Path) -> Iterator[None]:
    """Turn the disk's and Arrow's errors into `StorageFailed`."""
    pa = pyarrow()
    with translated(path):
        try:
            yield
        except pa.ArrowException as error:
            if isinstance(error, OSError):
                raise
            raise StorageFailed(str(path), f"{error}; remove the folder of this run") from error


def pyarrow() -> Any:
    """The package; `ConfigurationError` names the extra that brings it."""
    try:
        import pyarrow
    except ImportError as error:
        raise ConfigurationError(
            "redrive", "pyarrow", f"{error}; try: pip install 'pumphouse[report]'"
        ) from error
    return pyarrow

"""The record of handler times: a running pump writes it, `pump doctor` reads it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

import msgspec

from ..errors import StorageFailed
from ..findings import HandlerTimes
from ..message import new_id
from ..tasks import in_thread
from .spill import SpillStore, SqliteSpill

FILE_NAME = "handler-times.json"
_VERSION = 1


class _Record(msgspec.Struct, frozen=True):
    """Add fields with defaults; a change of what they mean needs another version."""

    version: int
    subscriptions: dict[str, HandlerTimes]


class HandlerTimesFile:
    """One small file in the app's data folder.

    Of several processes with one subscription the last to write is remembered. It is advice, not
    state: a record that cannot be read is as good as none.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)

    @classmethod
    def beside(cls, spill: SpillStore) -> Self | None:
        """The file in the folder of a spill; None for a spill that has no folder."""
        return cls(spill.path.with_name(FILE_NAME)) if isinstance(spill, SqliteSpill) else None

    @property
    def path(self) -> Path:
        """Where the record is, or will be."""
        return self._path

    async def read(self) -> dict[str, HandlerTimes]:
        """What was seen, by subscription; nothing when there is no record."""
        return await in_thread(self._read)

    async def write(self, times: Mapping[str, HandlerTimes]) -> None:
        """Put these in the place of older ones, and leave other subscriptions' as they are.

        A reader sees the whole record, old or new. Raises `StorageFailed`.
        """
        await in_thread(self._write, dict(times))

    def _read(self) -> dict[str, HandlerTimes]:
        try:
            record = msgspec.json.decode(self._path.read_bytes(), type=_Record)
        except (OSError, ValueError):
            return {}
        return record.subscriptions if record.version == _VERSION else {}

    def _write(self, times: dict[str, HandlerTimes]) -> None:
        record = _Record(_VERSION, self._read() | times)
        draft = self._path.with_name(f"{self._path.name}.{new_id()}.tmp")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                draft.write_bytes(msgspec.json.format(msgspec.json.encode(record)))
                draft.replace(self._path)
            finally:
                draft.unlink(missing_ok=True)
        except OSError as error:
            raise StorageFailed(str(self._path), str(error)) from error

"""A folder that is a small disk of its own, as far as `statvfs` says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_BLOCK_BYTES = 4096


class SmallDisk:
    """Full when the files of the folder are as large as it; it refuses no write itself."""

    def __init__(self, folder: Path, size_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._size_bytes = size_bytes
        self._statvfs = os.statvfs
        monkeypatch.setattr(os, "statvfs", self.statvfs)

    @property
    def left_bytes(self) -> int:
        """Below zero, it would have refused a write."""
        # In blocks of 512 bytes, whatever the file system's own are.
        used = (file.stat().st_blocks * 512 for file in self._folder.iterdir() if file.is_file())
        return self._size_bytes - sum(used)

    def statvfs(self, path: Path) -> os.statvfs_result:
        found = list(self._statvfs(path))
        found[0] = found[1] = _BLOCK_BYTES
        found[2] = self._size_bytes // _BLOCK_BYTES
        found[3] = found[4] = max(0, self.left_bytes) // _BLOCK_BYTES
        return os.statvfs_result(found)

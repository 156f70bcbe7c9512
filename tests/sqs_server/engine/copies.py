"""Copies of a server's folder, as a crash would leave it. Blocks: call it in a thread."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path


def copy_of(folder: Path) -> Path:
    """The files as they are now, log included, in a folder beside the first."""
    copy = Path(tempfile.mkdtemp(dir=folder, prefix="copy"))
    for name in ("sqs.db", "sqs.db-wal", "sqs.leases", "sqs.leases2"):
        if (folder / name).exists():
            shutil.copy(folder / name, copy / name)
    return copy

"""Presence: whether the files that are open are still the ones their names stand for.

A file that was removed, moved or replaced can still be written, and all that is lost when the
process ends. The system says nothing about it, so who promises durability has to look.
"""

from __future__ import annotations

import os
from pathlib import Path

from pump.errors import StorageFailed


class Presence:
    """Knows files as they were at first. Once one was missed, that is final: what was
    written meanwhile is nowhere, so going on would mix two histories.
    """

    def __init__(self, *paths: Path) -> None:
        """Raises `OSError` when one is not there already."""
        self._files = {str(path): os.stat(path) for path in paths}
        self._missed = ""

    def check(self) -> None:
        """Raise `StorageFailed` when a file is not there any more, or is another one."""
        if not self._missed:
            self._missed = next((path for path in self._files if not self._is_there(path)), "")
        if self._missed:
            raise StorageFailed(
                self._missed,
                "it was removed or replaced while in use, so nothing can be kept any more; put "
                "it back if you can, then start the program again",
            )

    def _is_there(self, path: str) -> bool:
        try:
            return os.path.samestat(os.stat(path), self._files[path])
        except (FileNotFoundError, NotADirectoryError):
            return False

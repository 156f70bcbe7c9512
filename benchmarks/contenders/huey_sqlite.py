"""Huey on SQLite with its default settings; tasks are taken and run in this thread.

That spares it the threads and the polling of its consumer. A task is gone once it is taken.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from huey import SqliteHuey

from ..reading import Reading, Stopwatch


def run(count: int) -> Reading:
    watch = Stopwatch()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        huey = SqliteHuey(filename=str(Path(folder) / "huey.db"))

        @huey.task()
        def handle(number: int) -> None:
            pass

        with watch.span("send"):
            for number in range(count):
                handle(number)
        with watch.span("pump"):
            handled = 0
            while (task := huey.dequeue()) is not None:
                huey.execute(task)
                handled += 1
        assert handled == count
        huey.storage.close()
    return watch.reading(count)

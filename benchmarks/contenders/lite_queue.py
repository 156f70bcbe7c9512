"""litequeue: put, pop, done."""

from __future__ import annotations

import tempfile
from pathlib import Path

from litequeue import LiteQueue

from ..reading import Reading, Stopwatch


def _handle(body: str) -> None:
    pass


def run(count: int) -> Reading:
    watch = Stopwatch()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        queue = LiteQueue(str(Path(folder) / "queue.db"))
        with watch.span("send"):
            for number in range(count):
                queue.put(f'{{"number":{number}}}')
        with watch.span("pump"):
            while (message := queue.pop()) is not None:
                _handle(message.data)
                queue.done(message.message_id)
        assert queue.qsize() == 0
        queue.close()
    return watch.reading(count)

"""persist-queue's SQLiteAckQueue: put, get, ack."""

from __future__ import annotations

import tempfile

from persistqueue import SQLiteAckQueue

from ..reading import Reading, Stopwatch


def _handle(item: object) -> None:
    pass


def run(count: int) -> Reading:
    watch = Stopwatch()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        queue = SQLiteAckQueue(folder)
        with watch.span("send"):
            for number in range(count):
                queue.put({"number": number})
        with watch.span("pump"):
            for _ in range(count):
                item = queue.get(block=False, raw=True)
                _handle(item["data"])
                queue.ack(item)
        assert queue.acked_count() == count
        queue.close()
    return watch.reading(count)

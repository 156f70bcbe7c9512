"""sqlite3 by hand, a hundred messages a transaction, each transaction synced to the disk."""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path

from ..reading import Reading, Stopwatch

_GROUP = 100


def _open(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE message (seq INTEGER PRIMARY KEY, body BLOB NOT NULL)")
    return database


def _send(database: sqlite3.Connection, count: int) -> None:
    for start in range(0, count, _GROUP):
        bodies = [(b'{"number":%d}' % number,) for number in range(start, start + _GROUP)]
        database.execute("BEGIN IMMEDIATE")
        database.executemany("INSERT INTO message (body) VALUES (?)", bodies[: count - start])
        database.execute("COMMIT")


def _handle(body: bytes) -> None:
    pass


def _consume(database: sqlite3.Connection) -> int:
    handled = 0
    while True:
        database.execute("BEGIN IMMEDIATE")
        rows = database.execute(
            "SELECT seq, body FROM message ORDER BY seq LIMIT ?", (_GROUP,)
        ).fetchall()
        for _, body in rows:
            _handle(body)
        database.executemany("DELETE FROM message WHERE seq = ?", [(seq,) for seq, _ in rows])
        database.execute("COMMIT")
        handled += len(rows)
        if not rows:
            return handled


def run(count: int) -> Reading:
    watch = Stopwatch()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        database = _open(Path(folder) / "queue.db")
        with watch.span("send"):
            _send(database, count)
        with watch.span("pump"):
            handled = _consume(database)
        assert handled == count
        database.close()
    return watch.reading(count)

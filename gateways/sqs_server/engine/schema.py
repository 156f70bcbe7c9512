"""The tables of the server's file.

`meta` (the file's key, and below which number all may be in use), `queues` (settings),
`messages` (one row each, in sequence order), `seen` (de-duplication keys), `moves` (move
tasks), and once something was found in it that is not what was written, `corrupted` (messages
that are kept and never served). Times are Unix times: they outlive the process. Who has a message
in flight is written in files beside it, see `leases.py`.
"""

from __future__ import annotations

from ..._sqlite.database import Schema

SCHEMA = Schema(
    application_id=0x50555351,  # "PUSQ"
    version=1,
    tables="""
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE queues (number INTEGER PRIMARY KEY, settings BLOB NOT NULL);
CREATE TABLE messages (
    seq INTEGER PRIMARY KEY, queue INTEGER NOT NULL, origin INTEGER, received INTEGER NOT NULL,
    sent_s REAL NOT NULL, first_s REAL NOT NULL, due_s REAL NOT NULL,
    message_group TEXT, source TEXT, extra BLOB, body TEXT NOT NULL
);
CREATE TABLE seen (
    queue INTEGER NOT NULL, key TEXT NOT NULL, seq INTEGER NOT NULL, until_s REAL NOT NULL,
    PRIMARY KEY (queue, key)
) WITHOUT ROWID;
CREATE TABLE moves (
    number INTEGER PRIMARY KEY, handle TEXT NOT NULL, source TEXT NOT NULL, target TEXT,
    rate INTEGER, to_move INTEGER NOT NULL, started_ms INTEGER NOT NULL, status TEXT NOT NULL,
    moved INTEGER NOT NULL, reason TEXT
);
""",
)

CORRUPTED = """
CREATE TABLE IF NOT EXISTS corrupted (
    seq INTEGER PRIMARY KEY, message_id TEXT NOT NULL, queue TEXT, found_s REAL NOT NULL,
    sent_s REAL, message_group TEXT, extra BLOB, body BLOB
)
"""
"""Made when it is needed; older releases do not look at it."""

KEY = "key"
RESERVED = "reserved"

"""The tables of the embedded broker.

`queues` (settings), `messages` (one row each, in sequence order), `leases` (one row a receive,
its members packed), `sessions` (locks that are held), `seen` (de-duplication ids), `replies`
(remote requests that must not be carried out twice), `clock` (the run of the machine, and what Unix
times minus its monotonic ones were; added later, and unknown to older releases). Times are Unix
times: they outlive the process. So does the highest number that a message ever had
(`AUTOINCREMENT`): it is what a delivery is known by (`broker_id`), and the copy of a message that
is gone must not have it again.
"""

from __future__ import annotations

from .._sqlite.database import Schema

CLOCK_TABLE = """
CREATE TABLE IF NOT EXISTS clock (boot TEXT PRIMARY KEY, offset_s REAL NOT NULL) WITHOUT ROWID
"""
SCHEMA = Schema(
    application_id=0x50554D50,  # "PUMP"
    version=3,
    tables=f"""{CLOCK_TABLE};
CREATE TABLE queues (name TEXT PRIMARY KEY, settings BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE messages (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, attempt INTEGER NOT NULL,
    due_s REAL NOT NULL, sent_s REAL NOT NULL, packed BLOB NOT NULL
);
CREATE TABLE leases (
    id TEXT PRIMARY KEY, queue TEXT NOT NULL, owner TEXT NOT NULL, request INTEGER,
    expires_s REAL NOT NULL, members BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE sessions (
    id TEXT PRIMARY KEY, queue TEXT NOT NULL, owner TEXT NOT NULL, request INTEGER,
    expires_s REAL NOT NULL, session TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE seen (
    queue TEXT NOT NULL, key TEXT NOT NULL, until_s REAL NOT NULL, PRIMARY KEY (queue, key)
) WITHOUT ROWID;
CREATE TABLE replies (
    owner TEXT NOT NULL, request INTEGER NOT NULL, reply BLOB NOT NULL,
    PRIMARY KEY (owner, request)
) WITHOUT ROWID;
""",
)

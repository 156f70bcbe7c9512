"""Tables: what a report consists of. Names, columns and meanings, for Parquet, HTML and the docs.

Columns are only ever added, at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple


class Kind(StrEnum):
    """What a column holds; None is possible in each."""

    TEXT = "text"
    COUNT = "count"
    """A whole number."""
    SHARE = "share"
    """From 0 to 1."""
    RATE = "rate"
    """So many a second."""
    SECONDS = "seconds"
    TIME = "time"
    """Microseconds since 1970, UTC."""


class Column(NamedTuple):
    """One column of a result."""

    name: str
    kind: Kind
    meaning: str


class ResultTable(NamedTuple):
    """One table of a report: `<name>.parquet`."""

    name: str
    meaning: str
    columns: tuple[Column, ...]


Results = dict[str, Sequence[tuple[Any, ...]]]
"""Rows by the name of their table; values in the order of its columns."""

TEXT, COUNT, SHARE, RATE, SECONDS, TIME = Kind

_STATUSES = (
    Column("deliveries", COUNT, "outcomes but for `redriven`: what pumps received"),
    Column("failed", COUNT, "of these, the ones that were not processed"),
    Column("processed", COUNT, "deliveries that were processed"),
    Column("retrying", COUNT, "deliveries that come again: deferred, or failed with retries left"),
    Column("dead_lettered", COUNT, "deliveries that were rejected and routed to a queue"),
    Column("discarded", COUNT, "deliveries that were rejected and taken by no queue"),
    Column("lease_lost", COUNT, "deliveries that the broker took back"),
    Column("redriven", COUNT, "dead letters that were sent again"),
    Column("failure_rate", SHARE, "`failed` of `deliveries`"),
    Column("per_s", RATE, "`deliveries` a second, of the slot or of the whole time"),
)
_SEEN = (
    Column("first_seen", TIME, "the first of them in this report"),
    Column("last_seen", TIME, "the last of them"),
)
_START = Column("start", TIME, "when the slot of time began")
_TYPE = Column("type", TEXT, "type of the messages; empty when nobody named one")
_QUEUE = Column("queue", TEXT, "where they were received")
_REASON = Column("reason", TEXT, "why they were rejected")
_FINGERPRINT = Column("fingerprint", TEXT, "the same for failures of one kind")
_TIMES = (
    Column("count", COUNT, "how many were measured"),
    Column("mean_s", SECONDS, "their mean"),
    Column("p50_s", SECONDS, "half of them took no longer"),
    Column("p90_s", SECONDS, "nine of ten took no longer"),
    Column("p99_s", SECONDS, "99 of 100 took no longer"),
    Column("max_s", SECONDS, "the longest"),
)

TABLES = (
    ResultTable(
        "totals",
        "One row: everything together.",
        (
            Column("rows", COUNT, "rows of the ledger that were in scope"),
            Column("duplicates", COUNT, "of these, the ones that told of the same delivery again"),
            *_STATUSES,
            Column("messages", COUNT, "different messages, by subscription"),
            Column("messages_retried", COUNT, "of these, the ones with more than one delivery"),
            Column("types", COUNT, "different types"),
            Column("queues", COUNT, "different queues"),
            Column("clusters", COUNT, "different fingerprints"),
            Column("dead_letters", COUNT, "messages in the snapshot of dead-letter queues"),
            Column("bucket_s", SECONDS, "how long a slot of time is"),
            *_SEEN,
        ),
    ),
    ResultTable("volumes", "Outcomes over time.", (_START, *_STATUSES)),
    ResultTable("volumes_by_type", "Outcomes over time, by type.", (_START, _TYPE, *_STATUSES)),
    ResultTable("volumes_by_queue", "Outcomes over time, by queue.", (_START, _QUEUE, *_STATUSES)),
    ResultTable(
        "volumes_by_reason", "Rejections over time, by reason.", (_START, _REASON, *_STATUSES)
    ),
    ResultTable("types", "Outcomes by type.", (_TYPE, *_STATUSES, *_SEEN)),
    ResultTable("queues", "Outcomes by queue.", (_QUEUE, *_STATUSES, *_SEEN)),
    ResultTable("reasons", "Rejections by reason.", (_REASON, *_STATUSES, *_SEEN)),
    ResultTable(
        "messages",
        "What became of messages in the end: the last outcome of each, by subscription.",
        (
            _TYPE,
            Column("messages", COUNT, "different messages, by subscription"),
            Column("processed", COUNT, "messages whose last outcome is `processed`"),
            Column("retrying", COUNT, "… `retrying`: not finished yet"),
            Column("dead_lettered", COUNT, "… `dead-lettered`"),
            Column("discarded", COUNT, "… `discarded`"),
            Column("lease_lost", COUNT, "… `lease-lost`: not finished yet"),
            Column("retried", COUNT, "messages that were delivered more than once"),
            Column("retry_rate", SHARE, "`retried` of `messages`"),
            Column("max_attempts", COUNT, "the most deliveries that one of them had"),
        ),
    ),
    ResultTable(
        "latency",
        "How long handlers ran (`run_s`), and how old messages were at their outcome (`age_s`).",
        (Column("metric", TEXT, "`run_s` or `age_s`"), _TYPE, *_TIMES),
    ),
    ResultTable("latency_over_time", "How long handlers ran, over time.", (_START, *_TIMES)),
    ResultTable(
        "attempts",
        "Outcomes by type and number of the attempt.",
        (
            _TYPE,
            Column("attempts", COUNT, "which delivery of the message it was; 20 is 20 or more"),
            *_STATUSES,
        ),
    ),
    ResultTable(
        "clusters",
        "Failures that are alike, the most frequent first.",
        (
            _FINGERPRINT,
            Column("pattern", TEXT, "what they have in common"),
            Column("count", COUNT, "deliveries that failed so"),
            Column("share", SHARE, "of all failures that have a text"),
            Column("messages", COUNT, "different messages"),
            Column("dead_lettered", COUNT, "deliveries of these that were rejected"),
            Column("error_types", TEXT, "classes of errors, the most frequent first"),
            Column("types", TEXT, "types of messages, the most frequent first"),
            Column("queues", TEXT, "queues, the most frequent first"),
            Column("reasons", TEXT, "reasons, the most frequent first"),
            *_SEEN,
            Column("example", TEXT, "the text of the last of them"),
            Column("example_message_id", TEXT, "and its message"),
        ),
    ),
    ResultTable(
        "seen",
        "First and last seen.",
        (
            Column("kind", TEXT, "`type`, `queue`, `reason` or `fingerprint`"),
            Column("name", TEXT, "which"),
            Column("count", COUNT, "how often"),
            *_SEEN,
        ),
    ),
    ResultTable(
        "poison",
        "Messages that fail again and again, or are dead letters for the second time.",
        (
            Column("message_id", TEXT, "the message"),
            _TYPE,
            _QUEUE,
            Column("failures", COUNT, "deliveries that failed"),
            Column("max_attempts", COUNT, "the highest number of an attempt"),
            Column("dead_lettered", COUNT, "how often it was rejected"),
            Column("redriven", COUNT, "how often it was sent again"),
            Column("final_status", TEXT, "its last outcome"),
            *_SEEN,
            _FINGERPRINT,
            Column("detail", TEXT, "its last failure"),
        ),
    ),
    ResultTable(
        "dead_letter_groups",
        "What lies in the dead-letter queues, by kind.",
        (
            Column("queue", TEXT, "the dead-letter queue"),
            Column("original_queue", TEXT, "where they were received"),
            _TYPE,
            _REASON,
            _FINGERPRINT,
            Column("pattern", TEXT, "what their details have in common"),
            Column("count", COUNT, "messages"),
            Column("max_attempts", COUNT, "the most deliveries that one of them had"),
            Column("oldest", TIME, "the first rejection"),
            Column("newest", TIME, "the last rejection"),
            Column("example", TEXT, "the detail of one of them"),
            Column("example_message_id", TEXT, "and its message"),
        ),
    ),
)
BY_NAME = {table.name: table for table in TABLES}

SNAPSHOT = ResultTable(
    "dead_letters",
    "Every message that the snapshot of the dead-letter queues saw.",
    (
        Column("message_id", TEXT, "the application's id of the message"),
        _TYPE,
        Column("queue", TEXT, "the dead-letter queue"),
        Column("original_queue", TEXT, "where it was received"),
        _REASON,
        Column("detail", TEXT, "what it was rejected with; may quote the body"),
        Column("attempts", COUNT, "deliveries it had when it was rejected"),
        Column("rejected_at", TIME, "when it was rejected"),
        Column("created_at", TIME, "when its sender made it"),
        Column("seen_at", TIME, "when the snapshot was taken"),
        Column("age_s", SECONDS, "from its rejection, or else its making, to `seen_at`"),
        Column("body_bytes", COUNT, "how large its body is"),
        _FINGERPRINT,
    ),
)
"""Not a result of SQL: written first, and read as the view `dead_letters`."""

"""Tables: what a report consists of. Names, columns and meanings, for Parquet, HTML and the docs.

Columns are only ever added, at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple


class ValueKind(StrEnum):
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


class ResultColumn(NamedTuple):
    """One column of a result."""

    name: str
    kind: ValueKind
    meaning: str


class ResultTable(NamedTuple):
    """One table of a report: `<name>.parquet`."""

    name: str
    meaning: str
    columns: tuple[ResultColumn, ...]


Results = dict[str, Sequence[tuple[Any, ...]]]
"""Rows by the name of their table; values in the order of its columns."""

TEXT, COUNT, SHARE, RATE, SECONDS, TIME = ValueKind

_STATUSES = (
    ResultColumn("deliveries", COUNT, "outcomes but for `redriven`: what pumps received"),
    ResultColumn("failed", COUNT, "of these, the ones that were not processed"),
    ResultColumn("processed", COUNT, "deliveries that were processed"),
    ResultColumn(
        "retrying", COUNT, "deliveries that come again: deferred, or failed with retries left"
    ),
    ResultColumn("dead_lettered", COUNT, "deliveries that were rejected and routed to a queue"),
    ResultColumn("discarded", COUNT, "deliveries that were rejected and taken by no queue"),
    ResultColumn("lease_lost", COUNT, "deliveries that the broker took back"),
    ResultColumn("redriven", COUNT, "dead letters that were sent again"),
    ResultColumn("failure_rate", SHARE, "`failed` of `deliveries`"),
    ResultColumn("per_s", RATE, "`deliveries` a second, of the slot or of the whole time"),
)
_SEEN = (
    ResultColumn("first_seen", TIME, "the first of them in this report"),
    ResultColumn("last_seen", TIME, "the last of them"),
)
_START = ResultColumn("start", TIME, "when the slot of time began")
_TYPE = ResultColumn("type", TEXT, "type of the messages; empty where none was given")
_QUEUE = ResultColumn("queue", TEXT, "where they were received")
_REASON = ResultColumn("reason", TEXT, "why they were rejected")
_FINGERPRINT = ResultColumn("fingerprint", TEXT, "the same for failures of one kind")
_TIMES = (
    ResultColumn("count", COUNT, "how many were measured"),
    ResultColumn("mean_s", SECONDS, "their mean"),
    ResultColumn("p50_s", SECONDS, "half of them took no longer"),
    ResultColumn("p90_s", SECONDS, "nine of ten took no longer"),
    ResultColumn("p99_s", SECONDS, "99 of 100 took no longer"),
    ResultColumn("max_s", SECONDS, "the longest"),
)

TABLES = (
    ResultTable(
        "totals",
        "One row: everything together.",
        (
            ResultColumn("rows", COUNT, "rows of the ledger that were in scope"),
            ResultColumn(
                "duplicates", COUNT, "of these, the ones that told of the same delivery again"
            ),
            *_STATUSES,
            ResultColumn("messages", COUNT, "different messages, by subscription"),
            ResultColumn(
                "messages_retried", COUNT, "of these, the ones with more than one delivery"
            ),
            ResultColumn("types", COUNT, "different types"),
            ResultColumn("queues", COUNT, "different queues"),
            ResultColumn("clusters", COUNT, "different fingerprints"),
            ResultColumn("dead_letters", COUNT, "messages in the snapshot of dead-letter queues"),
            ResultColumn("bucket_s", SECONDS, "how long a slot of time is"),
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
            ResultColumn("messages", COUNT, "different messages, by subscription"),
            ResultColumn("processed", COUNT, "messages whose last outcome is `processed`"),
            ResultColumn("retrying", COUNT, "… `retrying`: not finished yet"),
            ResultColumn("dead_lettered", COUNT, "… `dead-lettered`"),
            ResultColumn("discarded", COUNT, "… `discarded`"),
            ResultColumn("lease_lost", COUNT, "… `lease-lost`: not finished yet"),
            ResultColumn("retried", COUNT, "messages that were delivered more than once"),
            ResultColumn("retry_rate", SHARE, "`retried` of `messages`"),
            ResultColumn("max_attempts", COUNT, "the most deliveries that one of them had"),
        ),
    ),
    ResultTable(
        "latency",
        "How long handlers ran (`run_s`), and how old messages were at their outcome (`age_s`).",
        (ResultColumn("metric", TEXT, "`run_s` or `age_s`"), _TYPE, *_TIMES),
    ),
    ResultTable("latency_over_time", "How long handlers ran, over time.", (_START, *_TIMES)),
    ResultTable(
        "attempts",
        "Outcomes by type and number of the attempt.",
        (
            _TYPE,
            ResultColumn(
                "attempts", COUNT, "which delivery of the message it was; 20 is 20 or more"
            ),
            *_STATUSES,
        ),
    ),
    ResultTable(
        "clusters",
        "Failures that are alike, the most frequent first.",
        (
            _FINGERPRINT,
            ResultColumn("pattern", TEXT, "what they have in common"),
            ResultColumn("count", COUNT, "deliveries that failed so"),
            ResultColumn("share", SHARE, "of all failures that have a text"),
            ResultColumn("messages", COUNT, "different messages"),
            ResultColumn("dead_lettered", COUNT, "deliveries of these that were rejected"),
            ResultColumn("error_types", TEXT, "classes of errors, the most frequent first"),
            ResultColumn("types", TEXT, "types of messages, the most frequent first"),
            ResultColumn("queues", TEXT, "queues, the most frequent first"),
            ResultColumn("reasons", TEXT, "reasons, the most frequent first"),
            *_SEEN,
            ResultColumn("example", TEXT, "the text of the last of them"),
            ResultColumn("example_message_id", TEXT, "and its message"),
        ),
    ),
    ResultTable(
        "seen",
        "First and last seen.",
        (
            ResultColumn("kind", TEXT, "`type`, `queue`, `reason` or `fingerprint`"),
            ResultColumn("name", TEXT, "which"),
            ResultColumn("count", COUNT, "how often"),
            *_SEEN,
        ),
    ),
    ResultTable(
        "poison",
        "Messages that fail again and again, or are dead letters for the second time.",
        (
            ResultColumn("message_id", TEXT, "the message"),
            _TYPE,
            _QUEUE,
            ResultColumn("failures", COUNT, "deliveries that failed"),
            ResultColumn("max_attempts", COUNT, "the highest number of an attempt"),
            ResultColumn("dead_lettered", COUNT, "how often it was rejected"),
            ResultColumn("redriven", COUNT, "how often it was sent again"),
            ResultColumn("final_status", TEXT, "its last outcome"),
            *_SEEN,
            _FINGERPRINT,
            ResultColumn("detail", TEXT, "its last failure"),
        ),
    ),
    ResultTable(
        "dead_letter_groups",
        "What lies in the dead-letter queues, by kind.",
        (
            ResultColumn("queue", TEXT, "the dead-letter queue"),
            ResultColumn("original_queue", TEXT, "where they were received"),
            _TYPE,
            _REASON,
            _FINGERPRINT,
            ResultColumn("pattern", TEXT, "what their details have in common"),
            ResultColumn("count", COUNT, "messages"),
            ResultColumn("max_attempts", COUNT, "the most deliveries that one of them had"),
            ResultColumn("oldest", TIME, "the first rejection"),
            ResultColumn("newest", TIME, "the last rejection"),
            ResultColumn("example", TEXT, "the detail of one of them"),
            ResultColumn("example_message_id", TEXT, "and its message"),
        ),
    ),
)
BY_NAME = {table.name: table for table in TABLES}

SNAPSHOT = ResultTable(
    "dead_letters",
    "Every message that the snapshot of the dead-letter queues saw.",
    (
        ResultColumn("message_id", TEXT, "the application's id of the message"),
        _TYPE,
        ResultColumn("queue", TEXT, "the dead-letter queue"),
        ResultColumn("original_queue", TEXT, "where it was received"),
        _REASON,
        ResultColumn("detail", TEXT, "what it was rejected with; may quote the body"),
        ResultColumn("attempts", COUNT, "deliveries it had when it was rejected"),
        ResultColumn("rejected_at", TIME, "when it was rejected"),
        ResultColumn("created_at", TIME, "when its sender made it"),
        ResultColumn("seen_at", TIME, "when the snapshot was taken"),
        ResultColumn("age_s", SECONDS, "from its rejection, or else its making, to `seen_at`"),
        ResultColumn("body_bytes", COUNT, "how large its body is"),
        _FINGERPRINT,
    ),
)
"""Not a result of SQL: written first, and read as the view `dead_letters`."""

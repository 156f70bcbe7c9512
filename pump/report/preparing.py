"""Preparing: from the ledger's raw rows to the tables that the queries read.

| name | |
|---|---|
| `raw` | rows in scope, as they were written |
| `repeated` | hashes of (message, attempt, subscription, queue) that occur more than once |
| `affected` | hashes of the messages these belong to |
| `outcomes` | every delivery once |
| `known_types` | the most frequent types, numbered |
| `labelled` | `outcomes` with rare types under one name |
| `cube` | counts by slot of time, type, queue, reason, attempt and status |
| `failed` | deliveries that were not processed, with their fingerprints |

Rows that repeat are rare, and to sort ten million rows in order to find them is dear. So hashes are
counted first; only the messages that they point at are looked at row by row.
"""

from __future__ import annotations

import attrs

from ..stores.ledger.schema import COLUMNS
from .dialect import Dialect
from .engine import Engine
from .fingerprint import MAX_TEXT
from .scope import Scope, bucket_length_us

MAX_TYPES = 200
"""Types that have a line of their own; the others share one."""
OTHER_TYPES = "(other types)"
OTHER_CODE = MAX_TYPES + 2
"""Above all others: the numbers begin at 1, and a type without a name has 0."""
MAX_ATTEMPTS = 20
"""Attempts beyond are counted together."""
FAILED = "('retrying', 'dead-lettered', 'discarded', 'lease-lost')"
ROW = ("time_us", *(each.name for each in COLUMNS if each.name not in ("version", "time")))
_COLUMNS = ", ".join(ROW)
_KEY = ("message_id", "attempts", "subscription", "queue")


@attrs.frozen(kw_only=True)
class Prepared:
    """What is known when the tables are there."""

    raw_count: int
    first_us: int | None
    last_us: int | None
    bucket_us: int

    @property
    def span_s(self) -> float:
        """How long the outcomes took, and never nothing."""
        if self.first_us is None or self.last_us is None:
            return 1.0
        return max((self.last_us - self.first_us) / 1e6, 1.0)


def in_scope(scope: Scope, dialect: Dialect) -> str:
    """The condition for a row to be looked at."""
    conditions = [f"time_us >= {scope.since_us}"]
    if scope.until_us is not None:
        conditions.append(f"time_us < {scope.until_us}")
    if scope.types:
        conditions.append(f"type IN ({', '.join(map(dialect.literal, scope.types))})")
    return " AND ".join(conditions)


def prepare(engine: Engine) -> Prepared:
    """Make the tables."""
    [(raw_count, first_us, last_us)] = engine.rows(
        "SELECT count(*), min(time_us), max(time_us) FROM raw"
    )
    bucket_us = bucket_length_us(first_us or 0, last_us or 0)
    _make_outcomes(engine)
    _make_labelled(engine)
    _make_cube(engine, bucket_us)
    _make_failed(engine)
    return Prepared(
        raw_count=raw_count,
        first_us=first_us,
        last_us=last_us,
        bucket_us=bucket_us,
    )


def _make_outcomes(engine: Engine) -> None:
    hashed = engine.dialect.hashed
    engine.keep(
        "repeated",
        f"""SELECT k FROM (SELECT {hashed(*_KEY)} AS k FROM raw) AS keys
        GROUP BY k HAVING count(*) > 1""",
    )
    [(repeated_count,)] = engine.rows("SELECT count(*) FROM repeated")
    if not repeated_count:
        engine.view("outcomes", f"SELECT {_COLUMNS} FROM raw")
        return
    engine.keep(
        "affected",
        f"""SELECT DISTINCT {hashed("message_id")} AS h FROM raw
        JOIN repeated ON repeated.k = {hashed(*_KEY)}""",
    )
    engine.keep("sorted_out", _sorted_out(hashed("message_id")))
    engine.view(
        "outcomes",
        f"""SELECT {_COLUMNS} FROM raw LEFT JOIN affected ON affected.h = {hashed("message_id")}
        WHERE affected.h IS NULL
        UNION ALL SELECT {_COLUMNS} FROM sorted_out""",
    )


def _sorted_out(hashed_id: str) -> str:
    """The rows of the affected messages, the latest of those that tell of the same delivery.

    A message that is sent again from a dead-letter queue begins anew at attempt 1: that is
    another delivery. It has begun anew behind a row `redriven`, and where attempts fall behind
    a dead letter, for who redrives by other means leaves no such row.
    """
    latest_first = ", ".join(
        f"{each} DESC NULLS LAST"
        for each in ("time_us", "status", "type", "reason", "error_type", "detail", "run_s", "pump")
    )
    return f"""
    WITH theirs AS (
        SELECT {_COLUMNS} FROM raw JOIN affected ON affected.h = {hashed_id}
    ), stepped AS (
        SELECT {_COLUMNS},
            coalesce(sum(CASE WHEN status = 'redriven' THEN 1 ELSE 0 END) OVER (
                PARTITION BY message_id ORDER BY time_us
                RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS redrives,
            lag(status) OVER (PARTITION BY message_id, queue, subscription
                ORDER BY time_us, attempts, status) AS status_before,
            lag(attempts) OVER (PARTITION BY message_id, queue, subscription
                ORDER BY time_us, attempts, status) AS attempts_before
        FROM theirs
    ), living AS (
        SELECT {_COLUMNS}, redrives,
            sum(CASE WHEN status_before IN ('dead-lettered', 'discarded')
                AND attempts < attempts_before THEN 1 ELSE 0 END) OVER (
                PARTITION BY message_id, queue, subscription
                ORDER BY time_us, attempts, status
                ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS restarts
        FROM stepped
    ), ranked AS (
        SELECT {_COLUMNS}, row_number() OVER (
            PARTITION BY {", ".join(_KEY)}, redrives, restarts ORDER BY {latest_first}) AS place
        FROM living
    )
    SELECT {_COLUMNS} FROM ranked WHERE place = 1"""


def _make_labelled(engine: Engine) -> None:
    engine.keep(
        "known_types",
        f"""SELECT type, CASE WHEN type = '' THEN 0 ELSE place END AS code, type_count FROM (
            SELECT type, row_number() OVER (ORDER BY n DESC, type) AS place,
                count(*) OVER () AS type_count
            FROM (SELECT type, count(*) AS n FROM outcomes GROUP BY type) AS counted) AS ordered
        WHERE place <= {MAX_TYPES} OR type = ''""",
    )
    columns = ", ".join(f"o.{each}" for each in ROW if each != "type")
    engine.view(
        "labelled",
        f"""SELECT {columns}, coalesce(k.type, '{OTHER_TYPES}') AS type,
            coalesce(k.code, {OTHER_CODE}) AS type_code
        FROM outcomes AS o LEFT JOIN known_types AS k ON o.type = k.type""",
    )


def _make_cube(engine: Engine, bucket_us: int) -> None:
    engine.keep(
        "cube",
        f"""SELECT bucket_us, type, queue, reason, attempt, status, count(*) AS n,
            min(time_us) AS first_us, max(time_us) AS last_us
        FROM (SELECT time_us - time_us % {bucket_us} AS bucket_us, time_us, type, queue, reason,
            least(attempts, {MAX_ATTEMPTS}) AS attempt, status FROM labelled) AS slotted
        GROUP BY bucket_us, type, queue, reason, attempt, status""",
    )


def _make_failed(engine: Engine) -> None:
    engine.keep(
        "failed",
        f"""SELECT time_us, message_id, type, queue, subscription, status, attempts, reason,
            error_type, text, {engine.dialect.fingerprint("text")} AS fingerprint
        FROM (SELECT *, substr(coalesce(nullif(detail, ''), error_type), 1, {MAX_TEXT}) AS text
            FROM outcomes WHERE status IN {FAILED}) AS texts""",
    )

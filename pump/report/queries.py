"""Queries: the SQL of the report's tables, the same for both engines.

They read the tables of `preparing`. Moments are microseconds, so no engine's zone matters; sums
are of whole numbers, so neither does the order in which they are added.
"""

from __future__ import annotations

import attrs

from ..stores.ledger.rows import COLUMNS
from .engine import Dialect, SqlEngine
from .fingerprint import MAX_TEXT
from .source import ReportScope, bucket_length_us

# Preparing: from the ledger's raw rows to the tables that the queries read.
#
# | name          |                                                                             |
# |---------------|-----------------------------------------------------------------------------|
# | `raw`         | rows in scope, as they were written                                         |
# | `repeated`    | hashes of (message, attempt, subscription, queue) that occur more than once |
# | `affected`    | hashes of the messages these belong to                                      |
# | `outcomes`    | every delivery once                                                         |
# | `known_types` | the most frequent types, numbered                                           |
# | `labelled`    | `outcomes` with rare types under one name                                   |
# | `cube`        | counts by slot of time, type, queue, reason, attempt and status             |
# | `failed`      | deliveries that were not processed, with their fingerprints                 |
#
# Rows that repeat are rare, and to sort ten million rows in order to find them is dear. So hashes
# are counted first; only the messages that they point at are looked at row by row.

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
class PreparedTables:
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


def in_scope(scope: ReportScope, dialect: Dialect) -> str:
    """The condition for a row to be looked at."""
    conditions = [f"time_us >= {scope.since_us}"]
    if scope.until_us is not None:
        conditions.append(f"time_us < {scope.until_us}")
    if scope.types:
        conditions.append(f"type IN ({', '.join(map(dialect.literal, scope.types))})")
    return " AND ".join(conditions)


def prepare(engine: SqlEngine) -> PreparedTables:
    """Make the tables."""
    [(raw_count, first_us, last_us)] = engine.rows(
        "SELECT count(*), min(time_us), max(time_us) FROM raw"
    )
    bucket_us = bucket_length_us(first_us or 0, last_us or 0)
    _make_outcomes(engine)
    _make_labelled(engine)
    _make_cube(engine, bucket_us)
    _make_failed(engine)
    return PreparedTables(
        raw_count=raw_count,
        first_us=first_us,
        last_us=last_us,
        bucket_us=bucket_us,
    )


def _make_outcomes(engine: SqlEngine) -> None:
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
    a dead letter, for a redrive by other means leaves no such row.
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


def _make_labelled(engine: SqlEngine) -> None:
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


def _make_cube(engine: SqlEngine, bucket_us: int) -> None:
    engine.keep(
        "cube",
        f"""SELECT bucket_us, type, queue, reason, attempt, status, count(*) AS n,
            min(time_us) AS first_us, max(time_us) AS last_us
        FROM (SELECT time_us - time_us % {bucket_us} AS bucket_us, time_us, type, queue, reason,
            least(attempts, {MAX_ATTEMPTS}) AS attempt, status FROM labelled) AS slotted
        GROUP BY bucket_us, type, queue, reason, attempt, status""",
    )


def _make_failed(engine: SqlEngine) -> None:
    engine.keep(
        "failed",
        f"""SELECT time_us, message_id, type, queue, subscription, status, attempts, reason,
            error_type, text, {engine.dialect.fingerprint("text")} AS fingerprint
        FROM (SELECT *, substr(coalesce(nullif(detail, ''), error_type), 1, {MAX_TEXT}) AS text
            FROM outcomes WHERE status IN {FAILED}) AS texts""",
    )


ALL_TYPES = "(all types)"
OVER_TIME = "over time"
MAX_CLUSTERS = 200
MAX_POISON = 200
MAX_DEAD_LETTER_GROUPS = 500
POISON_FAILURES = 5
POISON_DEAD_LETTERS = 2
KEYS = ("bucket_us", "type", "queue", "reason", "attempt")
SETS: tuple[tuple[str, ...], ...] = (
    (),
    ("bucket_us",),
    ("bucket_us", "type"),
    ("bucket_us", "queue"),
    ("bucket_us", "reason"),
    ("type",),
    ("queue",),
    ("reason",),
    ("type", "attempt"),
)
"""What outcomes are counted by. In one query: each further one costs Spark a second."""
STATUS_CODES = ("processed", "retrying", "dead-lettered", "discarded", "lease-lost")
_OTHER_CODE = len(STATUS_CODES)
_CODES = 8
_LONGEST_S = "1e9"
_DIGITS = 3


def counts() -> str:
    """Counts by status for each of `SETS`; a bit says which columns a row is not about."""
    sets = ", ".join(f"({', '.join(keys)})" for keys in SETS)
    keys = ", ".join(KEYS)
    about = ", ".join(f"grouping({key}) AS no_{key}" for key in KEYS)
    return f"""
    SELECT {about}, {keys}, {_sums()}, min(first_us) AS first_us, max(last_us) AS last_us
    FROM cube GROUP BY GROUPING SETS ({sets})"""


def _sums() -> str:
    conditions = {
        "deliveries": "status <> 'redriven'",
        "failed": f"status IN {FAILED}",
        **{each.replace("-", "_"): f"status = '{each}'" for each in (*STATUS_CODES, "redriven")},
    }
    return ", ".join(
        f"coalesce(sum(CASE WHEN {condition} THEN n ELSE 0 END), 0) AS {name}"
        for name, condition in conditions.items()
    )


def messages(dialect: Dialect) -> str:
    """How many messages of each type ended how; the last outcome of a subscription counts."""
    ended = ", ".join(
        f"sum(CASE WHEN code = {code} THEN n ELSE 0 END) AS ended_{code}"
        for code in range(len(STATUS_CODES))
    )
    return f"""
    WITH ends AS (
        SELECT {dialect.hashed("message_id", "subscription")} AS h,
            max(time_us * {_CODES} + {_code()}) AS last, max(type_code) AS type_code,
            max(attempts) AS attempts, count(*) AS n
        FROM labelled WHERE status <> 'redriven'
        GROUP BY {dialect.hashed("message_id", "subscription")}
    ), grouped AS (
        SELECT type_code, last % {_CODES} AS code, count(*) AS n,
            sum(CASE WHEN attempts > 1 OR n > 1 THEN 1 ELSE 0 END) AS retried,
            max(attempts) AS attempts
        FROM ends GROUP BY type_code, last % {_CODES}
    ), named AS (
        SELECT type, code AS type_code FROM known_types
        UNION ALL SELECT '{OTHER_TYPES}', {OTHER_CODE}
    )
    SELECT type, sum(n) AS n, {ended}, sum(retried) AS retried,
        CAST(sum(retried) AS DOUBLE) / sum(n) AS retry_rate, max(attempts) AS attempts
    FROM grouped JOIN named ON grouped.type_code = named.type_code GROUP BY type"""


def _code() -> str:
    cases = " ".join(f"WHEN '{each}' THEN {code}" for code, each in enumerate(STATUS_CODES))
    return f"CASE status {cases} ELSE {_OTHER_CODE} END"


def latency(bucket_us: int) -> str:
    """Percentiles: of `run_s` and `age_s` by type and of all, and of `run_s` by slot of time."""
    slot = f"CAST(time_us - time_us % {bucket_us} AS VARCHAR(20))"
    return f"""
    WITH by_type AS ({_histogram("run_s", "type")} UNION ALL {_histogram("age_s", "type")}),
    histogram AS (
        SELECT * FROM by_type
        UNION ALL SELECT metric, '{ALL_TYPES}', q, sum(n), sum(sum_s), sum(sum_us), max(top)
            FROM by_type GROUP BY metric, q
        UNION ALL {_histogram("run_s", slot, name=OVER_TIME)}
    ) {_percentiles()}"""


def _histogram(metric: str, key: str, *, name: str = "") -> str:
    # In two parts: Spark adds in 64 bits, and the microseconds of ten million messages that are
    # eleven days old are more than these hold.
    whole_s = "CAST(floor(us / 1e6) AS BIGINT)"
    return f"""
    SELECT '{name or metric}' AS metric, key, q, count(*) AS n, sum({whole_s}) AS sum_s,
        sum(us - {whole_s} * 1000000) AS sum_us, max(seconds) AS top
    FROM ({_quantised(metric, key)}) AS quantised GROUP BY key, q"""


def _quantised(metric: str, key: str) -> str:
    """Every time in whole microseconds, and rounded to three digits as `q`.

    Few different numbers remain, whatever the number of rows: to count them takes one pass and
    little memory, where exact percentiles need all of them sorted, or at hand.
    """
    digits = "length(CAST(CAST(size AS BIGINT) AS VARCHAR(20)))"
    return f"""
    SELECT key, us, seconds, sign(us) * floor(size / step + 0.5) * step AS q
    FROM (SELECT key, us, seconds, size, pow(10, greatest({digits} - {_DIGITS}, 0)) AS step
        FROM (SELECT key, seconds, us, CAST(abs(us) AS DOUBLE) AS size
        FROM (SELECT key, seconds, CAST(floor(seconds * 1e6 + 0.5) AS BIGINT) AS us FROM (
        SELECT {key} AS key, least(greatest({metric}, -{_LONGEST_S}), {_LONGEST_S}) AS seconds
        FROM labelled WHERE {metric} IS NOT NULL AND NOT isnan({metric})) AS bounded) AS whole
        ) AS sized) AS stepped"""


def _percentiles() -> str:
    def at_least(share: int) -> str:
        return f"min(CASE WHEN upto * 100 >= total * {share} THEN q END) / 1e6"

    return f"""
    SELECT metric, key, max(total) AS n,
        (CAST(sum(sum_s) AS DOUBLE) + CAST(sum(sum_us) AS DOUBLE) / 1e6) / max(total) AS mean_s,
        {at_least(50)} AS p50_s, {at_least(90)} AS p90_s, {at_least(99)} AS p99_s, max(top) AS max_s
    FROM (SELECT metric, key, q, n, sum_s, sum_us, top,
        sum(n) OVER (PARTITION BY metric, key) AS total,
        sum(n) OVER (PARTITION BY metric, key ORDER BY q ROWS UNBOUNDED PRECEDING) AS upto
        FROM histogram) AS ranked
    GROUP BY metric, key"""


def top_clusters(dialect: Dialect) -> str:
    """The most frequent fingerprints: rows, messages, the last moment; and of all, their totals."""
    return f"""
    SELECT fingerprint, n, messages, last_us, cluster_count, text_count FROM (
        SELECT fingerprint, sum(n) AS n, count(*) AS messages, max(last_us) AS last_us,
            count(*) OVER () AS cluster_count, sum(sum(n)) OVER () AS text_count
        FROM (SELECT fingerprint, {dialect.hashed("message_id")} AS h, count(*) AS n,
            max(time_us) AS last_us FROM failed WHERE fingerprint IS NOT NULL
            GROUP BY fingerprint, {dialect.hashed("message_id")}) AS by_message
        GROUP BY fingerprint) AS clusters
    ORDER BY n DESC, fingerprint LIMIT {MAX_CLUSTERS}"""


# Types that are rare have one name: as many parts as messages would not fit into memory.
CLUSTER_PARTS = f"""
SELECT fingerprint, type, queue, reason, error_type, status, count(*) AS n,
    min(time_us) AS first_us, max(time_us) AS last_us, min(example) AS example
FROM (SELECT f.fingerprint, coalesce(k.type, '{OTHER_TYPES}') AS type, f.queue, f.reason,
    f.error_type, f.status, f.time_us,
    CASE WHEN f.time_us = t.last_us THEN concat(f.message_id, chr(31), f.text) END AS example
    FROM failed AS f JOIN top_clusters AS t ON f.fingerprint = t.fingerprint
    LEFT JOIN known_types AS k ON f.type = k.type) AS parts
GROUP BY fingerprint, type, queue, reason, error_type, status"""

POISON = f"""
SELECT message_id, count(*) AS failures, max(attempts) AS attempts,
    sum(CASE WHEN status IN ('dead-lettered', 'discarded') THEN 1 ELSE 0 END) AS dead_lettered,
    max(type) AS type, min(time_us) AS first_us, max(time_us) AS last_us
FROM failed GROUP BY message_id
HAVING count(*) >= {POISON_FAILURES} OR max(attempts) >= {POISON_FAILURES}
    OR sum(CASE WHEN status IN ('dead-lettered', 'discarded') THEN 1 ELSE 0 END)
        >= {POISON_DEAD_LETTERS}
ORDER BY dead_lettered DESC, attempts DESC, failures DESC, message_id LIMIT {MAX_POISON}"""

POISON_ENDS = f"""
SELECT o.message_id,
    max(CASE WHEN status <> 'redriven' THEN o.time_us * {_CODES} + {_code()} END) AS last,
    sum(CASE WHEN status = 'redriven' THEN 1 ELSE 0 END) AS redriven
FROM outcomes AS o JOIN poison ON o.message_id = poison.message_id GROUP BY o.message_id"""

POISON_ROWS = """
SELECT p.message_id, p.type, p.failures, p.attempts, p.dead_lettered, p.first_us, p.last_us,
    min(concat(f.queue, chr(31), coalesce(f.fingerprint, ''), chr(31),
        coalesce(f.text, ''))) AS example
FROM failed AS f JOIN poison AS p ON f.message_id = p.message_id AND f.time_us = p.last_us
GROUP BY p.message_id, p.type, p.failures, p.attempts, p.dead_lettered, p.first_us, p.last_us"""

DEAD_LETTER_GROUPS = f"""
SELECT queue, original_queue, type, reason, fingerprint, count(*) AS n, max(attempts) AS attempts,
    min(rejected_us) AS oldest, max(rejected_us) AS newest,
    min(concat(message_id, chr(31), coalesce(substr(detail, 1, 300), ''))) AS example,
    sum(count(*)) OVER () AS dead_letter_count
FROM dead_letters GROUP BY queue, original_queue, type, reason, fingerprint
ORDER BY n DESC, queue, original_queue NULLS LAST, type, reason NULLS LAST,
    fingerprint NULLS LAST LIMIT {MAX_DEAD_LETTER_GROUPS}"""


def status_of_code(last: int | None) -> str | None:
    """The status in what `POISON_ENDS` yields."""
    if last is None:
        return None
    code = last % _CODES
    return STATUS_CODES[code] if code < len(STATUS_CODES) else "other"

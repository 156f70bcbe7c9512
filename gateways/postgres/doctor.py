"""What `pump doctor` says of a database: queues that are missing, and what holds back its cleaning.

A message that was acked keeps its place until vacuum takes it away, or its table is truncated.
Vacuum takes nothing away that a transaction from before could still want to see, and no table is
truncated that a transaction has used. Pure: the gateway asks the questions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs

from pump.findings import Finding, error, ok, warning
from pump.subscription import MakeChannels, Subscription

OLD_TRANSACTION_S: Final = 300.0
NEAR_LIMIT: Final = 0.8
"""A larger part of the connections that a server takes is worth a word."""
MANY_DEAD: Final = 100_000

OLD: Final = """SELECT pid, coalesce(application_name, ''), coalesce(usename::text, ''),
    extract(epoch FROM clock_timestamp() - xact_start)::float8
FROM pg_stat_activity
WHERE xact_start < clock_timestamp() - %b * interval '1 second' AND datname = current_database()
ORDER BY xact_start LIMIT 5"""
PREPARED: Final = """SELECT gid, extract(epoch FROM clock_timestamp() - prepared)::float8
FROM pg_prepared_xacts
WHERE prepared < clock_timestamp() - %b * interval '1 second' LIMIT 5"""
CONNECTIONS: Final = """SELECT count(*), current_setting('max_connections')::int
FROM pg_stat_activity WHERE backend_type = 'client backend'"""
TABLES: Final = """SELECT c.relname::text,
    coalesce(current_setting('autovacuum')::bool, true)
        AND NOT coalesce('autovacuum_enabled=false' = ANY(c.reloptions), false),
    coalesce(s.n_dead_tup, 0), coalesce(s.n_live_tup, 0), pg_total_relation_size(c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_stat_all_tables s ON s.relid = c.oid
WHERE n.nspname = %b AND c.relkind = 'r' ORDER BY c.relname"""
QUEUES: Final = "SELECT name FROM @.queue"

Rows = Sequence[Sequence[Any]]


@attrs.frozen(kw_only=True)
class Seen:
    """The answers to the five questions above; without a schema, not to the last two."""

    old: Rows
    prepared: Rows
    connections: Rows
    tables: Rows = ()
    queues: Rows = ()


def findings(
    seen: Seen, subscriptions: Sequence[Subscription], *, target: str, listens: bool
) -> list[Finding]:
    """What a person should know."""
    found = [
        _of_listening(listens),
        *_of_transactions(seen.old, target),
        *_of_prepared(seen.prepared, target),
        *_of_connections(seen.connections, target),
        *_of_tables(seen.tables),
    ]
    for subscription in subscriptions:
        found += _of_queues(subscription, {name for (name,) in seen.queues})
    return found


def _of_listening(listens: bool) -> Finding:
    if listens:
        return ok("listening", "waiting receives are told of messages (NOTIFY)")
    return ok(
        "listening",
        "waiting receives poll: the connection goes through a pooler, or listen=off",
        "name the server itself in the URL of consumers to have messages half a second sooner",
    )


def _of_transactions(rows: Rows, target: str) -> Iterator[Finding]:
    for pid, application, user, age_s in rows:
        yield warning(
            target,
            f"process {pid} ({application or 'no application name'}, user {user}) has had a "
            f"transaction open for {_minutes(age_s)}: vacuum can take nothing away that was "
            f"deleted since",
            f"end it, with SELECT pg_terminate_backend({pid}) if need be; "
            f"idle_in_transaction_session_timeout ends forgotten ones",
        )


def _of_prepared(rows: Rows, target: str) -> Iterator[Finding]:
    for name, age_s in rows:
        yield warning(
            target,
            f"transaction {name!r} has been prepared for {_minutes(age_s)} and not committed",
            "COMMIT PREPARED or ROLLBACK PREPARED it",
        )


def _of_connections(rows: Rows, target: str) -> Iterator[Finding]:
    [[used, most]] = rows
    if used >= NEAR_LIMIT * most:
        yield warning(
            target,
            f"{used} of {most} connections are in use",
            "raise max_connections, put PgBouncer before it, or lower max_connections in the URLs",
        )


def _of_tables(rows: Rows) -> Iterator[Finding]:
    for name, is_cleaned, dead, live, size in rows:
        if not is_cleaned:
            yield error(
                f"table {name}",
                "autovacuum is off: every receive will take longer than the one before",
                "set autovacuum = on, and ALTER TABLE … RESET (autovacuum_enabled)",
            )
        elif dead > max(MANY_DEAD, 5 * live):
            yield warning(
                f"table {name}",
                f"{dead} dead rows beside {live} live ones, {_size(size)} in all",
                "look for old transactions, then VACUUM the table; pg_repack gives its space back",
            )


def _of_queues(subscription: Subscription, names: set[str]) -> Iterator[Finding]:
    missing = [spec.name for spec in subscription.queue_specs() if spec.name not in names]
    for name in missing:
        if subscription.make_channels is MakeChannels.CREATE:
            yield ok(f"queue {name}", "is not there yet, and made when the pump starts")
        else:
            yield error(f"queue {name}", "does not exist", "make it, or use make_channels=create")


def _minutes(age_s: float) -> str:
    return f"{age_s / 60:.0f} minutes"


def _size(size: int) -> str:
    return f"{size / 1_048_576:.0f} MB"

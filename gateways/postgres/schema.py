"""The schema of the queues: made, brought up to date and checked, by one process at a time."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Final

from pump.errors import ConfigurationError

TABLES: Final = ("tables.sql",)
"""What brings the tables from each version to the next. The functions are made anew each time."""
FUNCTIONS: Final = "functions.sql"
VERSION: Final = 1
"""Raised with every change of a table or function."""

FIND_VERSION: Final = """SELECT count(*) FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %b AND c.relname = 'version'"""
GET_VERSION: Final = "SELECT number FROM @.version"
LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('{lock}', 1))"
DROP_FUNCTIONS: Final = """DO $do$
DECLARE v_each text;
BEGIN
    FOR v_each IN
        SELECT p.oid::regprocedure::text FROM pg_proc p
        JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE n.nspname = {channel} AND p.prokind = 'f'
    LOOP
        EXECUTE 'DROP FUNCTION ' || v_each || ' CASCADE';
    END LOOP;
END $do$;
DROP TYPE IF EXISTS @.received CASCADE;
"""


def named(sql: str, schema: str) -> str:
    """The text for one schema, whose name needs no quotes inside of quotes (`PostgresSettings`)."""
    return (
        sql.replace("@.", f'"{schema}".')
        .replace("{schema}", f'"{schema}"')
        .replace("{channel}", f"'{schema}'")
        .replace("{lock}", f"{schema} ")
    )


@cache
def script(name: str) -> str:
    """A file of this package; read in a thread."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def upgrade(found: int) -> str:
    """The statements from a version, 0 for nothing, to this one."""
    make = "" if found else "CREATE SCHEMA IF NOT EXISTS {schema};"
    tables = [script(name) for name in TABLES[min(found, len(TABLES)) :]]
    done = f"UPDATE @.version SET number = {VERSION};"
    return "\n".join([make, *tables, DROP_FUNCTIONS, script(FUNCTIONS), done])


def check(found: int, schema: str) -> None:
    """Raise `ConfigurationError` unless a schema is of this version."""
    if found > VERSION:
        remedy = f"it is of a newer Pumphouse (version {found}, this one knows {VERSION}); upgrade"
        raise ConfigurationError("schema", schema, remedy)
    if found < VERSION:
        remedy = (
            f"it is of version {found}, and this Pumphouse needs {VERSION}: run once with "
            f"make_channels=MakeChannels.CREATE as its owner"
        )
        raise ConfigurationError("schema", schema, remedy)

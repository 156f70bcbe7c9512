"""The schema of the queues: what brings it from each version to this one."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Final

from pump.postgres.schema import Component

TABLES: Final = ("tables.sql", "rotation.sql")
"""What brings the tables from each version to the next. The functions are made anew each time."""
FUNCTIONS: Final = "functions.sql"
VERSION: Final = 2
"""Raised with every change of a table or function."""
_FUNCTION: Final = re.compile(r"^CREATE FUNCTION @\.(\w+)", re.MULTILINE)
_FORMER: Final = frozenset[str]()
"""Functions of earlier versions that there are no more."""

DROP_FUNCTIONS: Final = """DO $do$
DECLARE v_each text;
BEGIN
    FOR v_each IN
        SELECT p.oid::regprocedure::text FROM pg_proc p
        JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE n.nspname = {channel} AND p.prokind = 'f' AND p.proname = ANY('{%s}')
    LOOP
        EXECUTE 'DROP FUNCTION ' || v_each || ' CASCADE';
    END LOOP;
END $do$;
DROP TYPE IF EXISTS @.received CASCADE;
"""


@cache
def script(name: str) -> str:
    """A file of this package; read in a thread."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def upgrade(found: int) -> str:
    """The statements from a version, 0 for nothing, to this one."""
    tables = [script(name) for name in TABLES[min(found, len(TABLES)) :]]
    functions = script(FUNCTIONS)
    # Ours alone: the schema has functions of other components too.
    drop = DROP_FUNCTIONS % ",".join(sorted({*_FUNCTION.findall(functions), *_FORMER}))
    return "\n".join([*tables, drop, functions])


QUEUES: Final = Component(version_table="version", version=VERSION, upgrade=upgrade)

"""Tables of ours in a schema: made, brought up to date and checked, by one process at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from ..errors import ConfigurationError

FIND_TABLE: Final = """SELECT count(*) FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %b AND c.relname = %b"""
LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('{lock}', 1))"


@attrs.frozen(kw_only=True)
class Component:
    """Tables and functions that have one version, a number in a table of one row."""

    version_table: str
    version: int
    upgrade: Callable[[int], str]
    """The statements from a version, 0 for nothing, to this one; it may read files. From nothing it
    makes the table of the version too, with a row in it."""

    @property
    def get_version(self) -> str:
        """The statement that reads it."""
        return f"SELECT number FROM @.{self.version_table}"

    def statements(self, found: int) -> str:
        """What brings the component to this version, and says so."""
        make = "" if found else "CREATE SCHEMA IF NOT EXISTS {schema};"
        done = f"UPDATE @.{self.version_table} SET number = {self.version};"
        return "\n".join([make, self.upgrade(found), done])

    def check(self, found: int, schema: str) -> None:
        """Raise `ConfigurationError` unless what is there is of this version."""
        if found > self.version:
            remedy = (
                f"it is of a newer Pumphouse (version {found}, this one knows {self.version}); "
                f"upgrade"
            )
            raise ConfigurationError("schema", schema, remedy)
        if found < self.version:
            remedy = (
                f"it is of version {found}, and this Pumphouse needs {self.version}: run once with "
                f"MakeChannels.CREATE as its owner"
            )
            raise ConfigurationError("schema", schema, remedy)


def named(sql: str, schema: str) -> str:
    """The text for one schema, whose name needs no quotes inside of quotes (`PostgresSettings`)."""
    return (
        sql.replace("@.", f'"{schema}".')
        .replace("{schema}", f'"{schema}"')
        .replace("{channel}", f"'{schema}'")
        .replace("{lock}", f"{schema} ")
    )

"""docs/report.md names every table and every column there is."""

from __future__ import annotations

from pathlib import Path

from pump.report.tables import BY_NAME, SNAPSHOT, TABLES, ResultTable
from tests.docs.markdown import rows_between

PAGE = Path(__file__).resolve().parents[2] / "docs" / "report.md"
COUNTS = [column.name for column in BY_NAME["volumes"].columns[1:]]


def as_documented(table: ResultTable) -> list[str]:
    names = [f"`{column.name}`" for column in table.columns if column.name not in COUNTS]
    has_counts = all(name in [column.name for column in table.columns] for name in COUNTS)
    if not has_counts:
        return [f"`{column.name}`" for column in table.columns]
    at = [column.name for column in table.columns].index(COUNTS[0])
    return [*names[:at], "*counts*", *names[at:]]


def test_when_a_table_is_written_then_the_page_explains_it() -> None:
    """R78: what each table means."""
    found = rows_between(PAGE, "tables")

    assert found == [
        [f"`{table.name}`", table.meaning, ", ".join(as_documented(table))]
        for table in (*TABLES, SNAPSHOT)
    ]


def test_when_outcomes_are_counted_then_the_page_explains_by_what() -> None:
    """R78: what each count means."""
    assert rows_between(PAGE, "counts") == [
        [f"`{column.name}`", column.meaning] for column in BY_NAME["volumes"].columns[1:]
    ]

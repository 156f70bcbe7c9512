"""Ledgers by path or URL."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from pump.errors import ConfigurationError
from pump.postgres.settings import PostgresSettings
from pump.stores.ledger import ParquetLedger, PostgresLedger, SqliteLedger, ledger_from
from pump.stores.ledger.reading import Location, PostgresReader, locate, reader_from


@pytest.mark.parametrize(
    ("where", "path", "is_sqlite"),
    [
        ("sqlite:///var/lib/l.db", "/var/lib/l.db", True),
        ("sqlite://ledger", "ledger", True),
        ("parquet:///var/lib/ledger", "/var/lib/ledger", False),
        ("parquet://some/led%20ger.db", "some/led ger.db", False),
        ("ledger.db", "ledger.db", True),
        ("ledger.SQLITE", "ledger.SQLITE", True),
        ("some/ledger", "some/ledger", False),
    ],
)
def test_when_a_ledger_is_named_then_path_and_kind_are_known(
    where: str, path: str, is_sqlite: bool
) -> None:
    """R55."""
    assert locate(where) == Location(path=Path(path), is_sqlite=is_sqlite)
    assert isinstance(ledger_from(where), SqliteLedger if is_sqlite else ParquetLedger)


def test_when_something_is_there_already_then_that_decides(tmp_path: Path) -> None:
    (tmp_path / "folder.db").mkdir()
    (tmp_path / "file").touch()

    assert not locate(tmp_path / "folder.db").is_sqlite
    assert locate(str(tmp_path / "file")).is_sqlite


def test_when_a_url_says_more_then_that_is_heeded() -> None:
    location = locate("parquet://ledger?keep=90d&detail=no")

    assert (location.keep, location.detail) == (timedelta(days=90), False)


@pytest.mark.parametrize(
    "where",
    [
        "mysql://ledger",
        "sqlite://",
        "sqlite://l.db?what=1",
        "sqlite://l.db?keep=soon",
        "sqlite://l.db?detail=perhaps",
        "parquet://l?keep=1h",
        "sqlite://[",
    ],
)
def test_when_a_name_makes_no_sense_then_it_is_refused(where: str) -> None:
    """R56."""
    with pytest.raises(ConfigurationError):
        ledger_from(where)


def test_when_a_name_of_the_package_does_not_exist_then_that_is_an_attribute_error() -> None:
    from pump.stores import ledger

    with pytest.raises(AttributeError, match="no_such_name"):
        ledger.no_such_name  # noqa: B018


def test_when_a_name_is_too_long_for_any_file_then_it_is_located_all_the_same() -> None:
    """Whoever opens it is told."""
    assert locate("x" * 5_000) == Location(path=Path("x" * 5_000), is_sqlite=False)


def test_when_a_database_is_named_then_its_options_and_ours_are_told_apart() -> None:
    """R56, R61: and no password is repeated."""
    url = "postgres://me:s3cret@db/shop?schema=shop&keep=30d&detail=no"

    location = locate(url)

    assert location.postgres == PostgresSettings.from_url(
        "postgres://me:s3cret@db/shop?schema=shop"
    )
    assert (location.keep, location.detail) == (timedelta(days=30), False)
    assert (location.may_be_there, location.shown) == (True, "postgres://db/shop")
    assert isinstance(ledger_from(url), PostgresLedger)
    assert isinstance(reader_from(url), PostgresReader)
    for wrong in ("keep=soon", "detail=perhaps", "sslmod=require"):
        with pytest.raises(ConfigurationError) as refused:
            locate(f"postgres://me:s3cret@db/shop?{wrong}")
        assert "s3cret" not in str(refused.value)

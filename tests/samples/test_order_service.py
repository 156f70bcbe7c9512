"""The sample of the outbox: a shop that dies before it sends, in SQLite and in PostgreSQL."""

from __future__ import annotations

import signal
from pathlib import Path

import psycopg
import pytest

from tests.brokers.postgres_server import PostgresServer

from .test_samples import expected_lines, run

SAMPLE = "order_service"


def shopped(cwd: Path, **database: str) -> list[str]:
    """Place orders until the shop is killed, then ship; what that prints."""
    shop = run("-m", f"samples.{SAMPLE}", cwd=cwd, **database)
    assert shop.returncode == -signal.SIGKILL, shop.stderr
    service = ("-m", "pump", "run", f"samples.{SAMPLE}:app", "--until-empty")
    done = run(*service, cwd=cwd, **database)
    assert done.returncode == 0, done.stderr
    return [*shop.stdout.splitlines(), *done.stdout.splitlines()]


@pytest.mark.timeout(150)
def test_when_the_shop_dies_before_it_sends_then_its_order_is_shipped(tmp_path: Path) -> None:
    assert shopped(tmp_path) == expected_lines(SAMPLE)


@pytest.mark.broker
@pytest.mark.timeout(150)
def test_when_the_shop_is_on_postgres_then_its_order_is_shipped_too(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE shop")
    try:
        url = postgres.url("shop").replace("postgres:", "postgresql+psycopg:")

        assert shopped(tmp_path, SHOP_DATABASE=url) == expected_lines(SAMPLE)
    finally:
        with psycopg.connect(postgres.url(), autocommit=True) as connection:
            connection.execute("DROP DATABASE shop WITH (FORCE)")

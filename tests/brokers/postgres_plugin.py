"""The fixtures of tests against PostgreSQL, and what is said where it cannot be had."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from .pgbouncer import installed_pooler, pooler
from .postgres_server import FAST, PostgresServer, installed_programs, postgres_server

MISSING = "PostgreSQL cannot be had: install postgresql (`make test-brokers` does so as root)"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One loud line: what was left out must not look like what has passed."""
    skipped = terminalreporter.stats.get("skipped", [])
    count = sum(MISSING in str(report.longrepr) for report in skipped)
    if count:
        terminalreporter.write_line(f"{count} TESTS LEFT OUT: {MISSING}", red=True, bold=True)


def _require(program: object) -> None:
    if program is not None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(MISSING)
    pytest.skip(MISSING)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """This process's PostgreSQL. Nothing of it survives a crash of the machine."""
    _require(installed_programs())
    with postgres_server() as server:
        yield server


@pytest.fixture
def postgres_schema(postgres: PostgresServer) -> Iterator[str]:
    """The URL of a schema of the test's own, which is not made yet."""
    schema = f"test_{secrets.token_hex(6)}"
    yield f"{postgres.url()}?schema={schema}"
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE'.encode())


@pytest.fixture
def own_postgres() -> Iterator[Callable[..., PostgresServer]]:
    """Start a server of the test's own: `own_postgres("max_connections=5", is_safe=True)`."""
    _require(installed_programs())
    with ExitStack() as servers:

        def start(*settings: str, is_safe: bool = False) -> PostgresServer:
            given = (*(() if is_safe else FAST), *settings)
            return servers.enter_context(postgres_server(given))

        yield start


@pytest.fixture
def pgbouncer(postgres: PostgresServer) -> Iterator[int]:
    """The port of a PgBouncer in transaction mode, with two connections to the process's server."""
    _require(installed_pooler())
    with pooler(postgres) as port:
        yield port

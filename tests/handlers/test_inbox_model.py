"""Any sequence of operations, against the table in pump/stores/inbox.py."""

from __future__ import annotations

import asyncio
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from handlers import MemoryInbox, PostgresInbox, SqliteInbox
from pump.message import new_id
from pump.stores.inbox import AlreadyDone, Busy, Claimed, Inbox
from tests.brokers.postgres_server import PostgresServer

LEASE_S, RETENTION_S = 30.0, 86_400.0
keys = st.sampled_from(["k1", "k2"])
owners = st.sampled_from(["a", "b", "c"])


class InboxModel(RuleBasedStateMachine):
    """The model: a key has a row (owner, is_done, expiry), or none."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.inbox: Inbox = self.make()
        self.now_s = 0.0
        self.rows: dict[str, tuple[str, bool, float]] = {}

    def make(self) -> Inbox:
        return MemoryInbox()

    def call(self, coroutine: Any) -> Any:
        return self.runner.run(coroutine)

    def row(self, key: str) -> tuple[str, bool, float] | None:
        row = self.rows.get(key)
        return row if row is not None and row[2] > self.now_s else None

    @rule(key=keys, owner=owners)
    def claim(self, key: str, owner: str) -> None:
        claim = self.call(self.inbox.claim(key, owner=owner, now_s=self.now_s, lease_s=LEASE_S))
        row = self.row(key)
        if row is None:
            assert claim == Claimed()
            self.rows[key] = (owner, False, self.now_s + LEASE_S)
        elif row[:2] != (owner, False) or claim != Claimed():
            assert claim == (AlreadyDone() if row[1] else Busy(row[2]))

    @rule(key=keys, owner=owners)
    def extend(self, key: str, owner: str) -> None:
        row = self.row(key)
        extended = self.call(self.inbox.extend(key, owner=owner, now_s=self.now_s, lease_s=LEASE_S))
        if row is not None:
            assert extended == (row[0] == owner and not row[1])
        # An expired claim that nobody has taken may be extended or gone: the store decides.
        if extended:
            self.rows[key] = (owner, False, self.now_s + LEASE_S)

    @rule(key=keys, owner=owners)
    def complete(self, key: str, owner: str) -> None:
        self.call(self.inbox.complete(key, owner=owner, now_s=self.now_s))
        self.rows[key] = (owner, True, self.now_s + RETENTION_S)

    @rule(key=keys, owner=owners)
    def release(self, key: str, owner: str) -> None:
        self.call(self.inbox.release(key, owner=owner))
        row = self.rows.get(key)
        if row is not None and row[:2] == (owner, False):
            del self.rows[key]

    @rule(seconds=st.sampled_from([1.0, 29.0, 30.0, 90_000.0]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @precondition(lambda self: not isinstance(self.inbox, MemoryInbox))
    @rule()
    def restart(self) -> None:
        self.call(self.inbox.aclose())
        self.inbox = self.make()

    @invariant()
    def a_claim_has_one_owner(self) -> None:
        assert all(owner for owner, _, _ in self.rows.values())

    def teardown(self) -> None:
        self.call(self.inbox.aclose())
        self.runner.close()


def test_the_memory_inbox_does_what_its_table_says() -> None:
    run_state_machine_as_test(InboxModel, settings=settings(max_examples=50, deadline=None))


def test_the_sqlite_inbox_does_what_its_table_says_across_restarts() -> None:
    class SqliteModel(InboxModel):
        def __init__(self) -> None:
            self.folder = tempfile.TemporaryDirectory()
            super().__init__()

        def make(self) -> Inbox:
            path = Path(self.folder.name) / "inbox.db"
            return SqliteInbox(path, retention=timedelta(seconds=RETENTION_S))

        def teardown(self) -> None:
            super().teardown()
            self.folder.cleanup()

    few = settings(
        max_examples=20,
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    run_state_machine_as_test(SqliteModel, settings=few)


@pytest.mark.broker
def test_the_postgres_inbox_does_what_its_table_says_across_restarts(
    postgres: PostgresServer,
) -> None:
    class PostgresModel(InboxModel):
        def __init__(self) -> None:
            self.url = f"{postgres.url()}?schema=model_{new_id()}"
            super().__init__()

        def make(self) -> Inbox:
            retention = timedelta(seconds=RETENTION_S)
            return PostgresInbox(self.url, retention=retention, time_of="caller")

    few = settings(
        max_examples=20,
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    run_state_machine_as_test(PostgresModel, settings=few)

"""Sessions of a queue against a naive model, under any sequence of operations."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
from hypothesis import settings as hypothesis_settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gateways._engine.record import EngineSettings, LeaseBatch, LockedSession, Record
from gateways._engine.state import QueueState
from pump.message import Message
from pump.outcome import ABANDON, ACK, Action, Defer

LEASE_S = 30.0
GROUPS = ["a", "b", "c"]
ACTIONS = st.sampled_from([ACK, ABANDON, Defer(0.0), Defer(7.0), Defer(40.0)])


@attrs.define(eq=False)
class Entry:
    seq: int
    group: str | None
    hidden_until_s: float
    attempt: int = 0
    receipt: str | None = None


class SessionMachine(RuleBasedStateMachine):
    """R38, R40, R41: one holder a group, in order, and nobody else meanwhile."""

    @initialize(is_strict=st.booleans())
    def start(self, is_strict: bool) -> None:
        self.now_s = 1000.0
        self.next_seq = 1
        self.state = QueueState(EngineSettings(name="orders", is_strict=is_strict))
        self.entries: list[Entry] = []
        self.locks: dict[str, tuple[str, float]] = {}
        self.over: list[str] = []
        self.receipts: list[str] = []

    @rule(
        group=st.sampled_from([None, *GROUPS, *GROUPS]),
        delay_s=st.sampled_from([0.0, 0.0, 5.0]),
    )
    def send(self, group: str | None, delay_s: float) -> None:
        arrival = self.state.prepare(
            [Message(body=b"", group=group)],
            first_seq=self.next_seq,
            now_s=self.now_s,
            delay_s=delay_s,
        )
        self.state.add(arrival.records)
        self.entries.append(Entry(self.next_seq, group, self.now_s + delay_s))
        self.next_seq += 1

    @rule(count=st.integers(1, 4))
    def receive(self, count: int) -> None:
        self.promote()
        batch = self.state.take(count, lease_s=LEASE_S, now_s=self.now_s)
        self.taken(batch, self.next_entries(count), self.now_s + LEASE_S)

    @rule(group=st.sampled_from([None, None, *GROUPS, "empty"]))
    def accept(self, group: str | None) -> None:
        self.promote()
        expected = self.next_free() if group is None else group
        if expected is not None and self.is_busy(expected):
            expected = None

        lock = self.state.sessions.accept(group, until_s=self.now_s + LEASE_S)

        assert (None if lock is None else lock.group) == expected
        if lock is not None:
            assert lock.id not in self.over
            self.locks[lock.group] = (lock.id, lock.expires_s)

    @precondition(lambda self: self.locks)
    @rule(data=st.data(), count=st.integers(1, 3))
    def receive_in_a_session(self, data: st.DataObject, count: int) -> None:
        self.promote()
        lock = self.draw_lock(data)
        if lock is None:
            return
        expected: list[Entry] = []
        for entry in self.of(lock.group):
            if entry.receipt is None and len(expected) < count:
                if entry.hidden_until_s > self.now_s:
                    break
                expected.append(entry)

        batch = self.state.take_in_session(lock, count)

        self.taken(batch, expected, lock.expires_s)

    @precondition(lambda self: self.receipts)
    @rule(data=st.data(), action=ACTIONS, fails=st.sampled_from([False, False, True]))
    def settle(self, data: st.DataObject, action: Action, fails: bool) -> None:
        self.promote()
        receipt = data.draw(st.sampled_from(self.receipts))
        entry = next((each for each in self.entries if each.receipt == receipt), None)

        detached = self.state.detach([receipt], [action])

        assert detached.refused == ([0] if entry is None else [])
        if fails:
            self.state.reattach(detached.records())
            return
        self.state.finish_acked(detached.acked)
        self.state.finish_returned(detached.returned, now_s=self.now_s)
        if entry is None:
            return
        entry.receipt = None
        if action == ACK:
            self.entries.remove(entry)
        elif action == ABANDON:
            entry.attempt -= 1
            entry.hidden_until_s = self.now_s
        elif isinstance(action, Defer):
            entry.hidden_until_s = self.now_s + action.delay_s

    @precondition(lambda self: self.locks)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        self.promote()
        lock = self.draw_lock(data)
        if lock is None:
            return

        self.state.sessions.renew(lock, until_s=self.now_s + LEASE_S)

        self.locks[lock.group] = (lock.id, self.now_s + LEASE_S)
        for entry in self.of(lock.group):
            if entry.receipt is not None:
                entry.hidden_until_s = self.now_s + LEASE_S

    @precondition(lambda self: self.locks)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.promote()
        lock = self.draw_lock(data)
        if lock is None:
            return

        receipts = lock.receipts()
        detached = self.state.detach(receipts, [ABANDON] * len(receipts))
        self.state.finish_returned(detached.returned, now_s=self.now_s)
        self.state.release(lock)

        self.end(lock.group)
        for entry in self.of(lock.group):
            if entry.receipt is not None:
                entry.receipt, entry.hidden_until_s = None, self.now_s
                entry.attempt -= 1

    @rule(seconds=st.sampled_from([1.0, 6.0, 15.0, 31.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.now_s += seconds

    @rule()
    def start_from_a_copy(self) -> None:
        """As a host does that takes over."""
        self.promote()
        old = self.state
        self.state = QueueState(old.settings)
        locks = [
            LockedSession(lock.id, lock.group, lock.owner, lock.expires_s) for lock in old.sessions
        ]
        self.state.restore(_copies(old.records.values()), locks)

    @rule()
    def change_the_settings(self) -> None:
        self.promote()
        self.state.reconfigure(attrs.evolve(self.state.settings))

    @rule()
    def purge(self) -> None:
        self.promote()
        assert self.state.clear() == len(self.entries)
        self.entries.clear()

    @invariant()
    def everything_is_counted(self) -> None:
        self.promote()
        stats = self.state.stats(self.now_s)
        in_flight = sum(entry.receipt is not None for entry in self.entries)
        assert stats.in_flight == in_flight
        assert stats.visible + stats.delayed + in_flight == len(self.entries)

    def promote(self) -> None:
        self.state.promote(self.now_s)
        for group, (_, until_s) in list(self.locks.items()):
            if until_s <= self.now_s:
                self.end(group)
        for entry in self.entries:
            if entry.receipt is not None and entry.hidden_until_s <= self.now_s:
                entry.receipt = None
        assert {lock.group for lock in self.state.sessions} == set(self.locks)

    def end(self, group: str) -> None:
        self.over.append(self.locks.pop(group)[0])

    def draw_lock(self, data: st.DataObject) -> LockedSession | None:
        if not self.locks:
            return None
        token = self.locks[data.draw(st.sampled_from(sorted(self.locks)))][0]
        lock = self.state.sessions.find(token)
        assert lock is not None
        return lock

    def of(self, group: str | None) -> list[Entry]:
        return [entry for entry in self.entries if entry.group == group]

    def is_busy(self, group: str) -> bool:
        return group in self.locks or any(entry.receipt for entry in self.of(group))

    def next_free(self) -> str | None:
        heads = {entry.group: entry for entry in reversed(self.entries) if entry.group}
        free = [
            head.seq
            for group, head in heads.items()
            if group and not self.is_busy(group) and head.hidden_until_s <= self.now_s
        ]
        return next((e.group for e in self.entries if free and e.seq == min(free)), None)

    def next_entries(self, count: int) -> list[Entry]:
        """What an ordinary receive gets."""
        is_strict = self.state.settings.is_strict
        chosen: list[Entry] = []
        blocked: set[str | None] = {e.group for e in self.entries if e.receipt}
        blocked.update(self.locks)
        for entry in self.entries:
            is_ordered = is_strict or entry.group is not None
            if len(chosen) == count or entry.receipt is not None:
                continue
            if is_ordered and entry.group in blocked:
                continue
            if entry.hidden_until_s <= self.now_s:
                chosen.append(entry)
            if is_ordered and (is_strict or entry.hidden_until_s > self.now_s):
                blocked.add(entry.group)
        return chosen

    def taken(self, batch: LeaseBatch | None, expected: list[Entry], until_s: float) -> None:
        records = [] if batch is None else list(batch.members.values())
        assert [record.seq for record in records] == [entry.seq for entry in expected]
        for record, entry in zip(records, expected, strict=True):
            entry.attempt += 1
            entry.receipt, entry.hidden_until_s = record.receipt, until_s
            assert record.attempt == entry.attempt
            assert record.receipt not in self.receipts
            self.receipts.append(record.receipt)


def _copies(records: Iterable[Record]) -> list[Record]:
    batches: dict[str, LeaseBatch] = {}
    copies = []
    for record in records:
        copy = attrs.evolve(record, ordering_group=None, batch=None, is_offered=False)
        if record.batch is not None:
            batch = record.batch
            copy.batch = batches.setdefault(
                batch.id, LeaseBatch(batch.id, batch.owner, batch.expires_s)
            )
        copies.append(copy)
    return copies


TestSessions = SessionMachine.TestCase
TestSessions.settings = hypothesis_settings(max_examples=60, stateful_step_count=60, deadline=None)

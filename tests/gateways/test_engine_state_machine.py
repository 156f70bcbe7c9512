"""The state machine of a queue against a naive model, under any sequence of operations."""

from __future__ import annotations

from hypothesis import settings as hypothesis_settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gateways._engine.record import EngineSettings, Lapse, Record
from gateways._engine.state import QueueState
from pump.message import Message
from pump.outcome import ABANDON, ACK, Action, Defer

from .model_queue import Entry, ModelQueue

LEASE_S = 30.0
ACTIONS = st.sampled_from([ACK, ABANDON, Defer(0.0), Defer(7.0), Defer(40.0)])
SETTINGS = st.builds(
    lambda order, limit, window_s: EngineSettings(
        name="orders",
        is_lifo=order == "lifo",
        is_strict=order == "strict",
        max_receive_count=limit,
        dead_letter_queue="dead" if limit else None,
        deduplication_window_s=window_s,
    ),
    st.sampled_from(["fifo", "lifo", "strict"]),
    st.sampled_from([None, 1, 2]),
    st.sampled_from([20.0, 300.0]),
)


class QueueMachine(RuleBasedStateMachine):
    """R3, R5, R6, R8, R9, R14, R16, R20, R36–R39, T5, T7."""

    @initialize(settings=SETTINGS)
    def start(self, settings: EngineSettings) -> None:
        self.now_s = 1000.0
        self.next_seq = 1
        self.state = QueueState(settings)
        self.model = ModelQueue(settings)
        self.dead: list[str] = []
        self.receipts: list[str] = []

    @rule(
        group=st.sampled_from([None, None, "a", "b"]),
        key=st.sampled_from([None, None, "k1", "k2"]),
        delay_s=st.sampled_from([0.0, 0.0, 5.0]),
    )
    def send(self, group: str | None, key: str | None, delay_s: float) -> None:
        message = Message(body=b"", group=group, deduplication_id=key)
        arrival = self.state.prepare(
            [message], first_seq=self.next_seq, now_s=self.now_s, delay_s=delay_s
        )
        self.state.add(arrival.records)
        entry = Entry(self.next_seq, message.id, group, hidden_until_s=self.now_s + delay_s)
        assert self.model.send(entry, key, self.now_s) == bool(arrival.records)
        self.next_seq += len(arrival.records)

    @rule(count=st.integers(1, 4), reaches_nobody=st.sampled_from([False, False, True]))
    def receive(self, count: int, reaches_nobody: bool) -> None:
        self.promote()
        batch = self.state.take(count, lease_s=LEASE_S, now_s=self.now_s)
        taken = [] if batch is None else list(batch.members.values())
        expected = self.model.next_entries(count, self.now_s)
        assert [r.message.id for r in taken] == [e.id for e in expected]
        assert [r.attempt for r in taken] == [e.attempt + 1 for e in expected]
        if batch is not None and reaches_nobody:
            self.state.revoke(batch, now_s=self.now_s)
            return
        for record, entry in zip(taken, expected, strict=True):
            entry.attempt += 1
            entry.receipt = record.receipt
            entry.hidden_until_s = self.now_s + LEASE_S
            assert record.receipt not in self.receipts
            self.receipts.append(record.receipt)

    @precondition(lambda self: self.receipts)
    @rule(data=st.data(), action=ACTIONS, fails=st.sampled_from([False, False, True]))
    def settle(self, data: st.DataObject, action: Action, fails: bool) -> None:
        self.promote()
        receipt = data.draw(st.sampled_from(self.receipts))
        entry = self.model.find(receipt)
        detached = self.state.detach([receipt], [action])
        assert detached.refused == ([0] if entry is None else [])
        if fails:
            self.state.reattach(detached.records())
            return
        self.state.finish_acked(detached.acked)
        self.dead_letter(self.state.finish_returned(detached.returned, now_s=self.now_s))
        if entry is not None:
            self.settle_model(entry, action)

    def settle_model(self, entry: Entry, action: Action) -> None:
        if action == ACK:
            self.model.entries.remove(entry)
        elif action == ABANDON:
            entry.attempt -= 1
            entry.receipt = None
            entry.hidden_until_s = self.now_s
        elif isinstance(action, Defer):
            self.model.give_back(entry, action.delay_s, self.now_s)

    @precondition(lambda self: self.receipts)
    @rule(data=st.data(), lease_s=st.sampled_from([10.0, 60.0]))
    def extend(self, data: st.DataObject, lease_s: float) -> None:
        self.promote()
        receipts = data.draw(st.lists(st.sampled_from(self.receipts), max_size=3))
        extension = self.state.extend(receipts, until_s=self.now_s + lease_s)
        refused = [n for n, receipt in enumerate(receipts) if self.model.find(receipt) is None]
        assert extension.refused == refused
        for receipt in receipts:
            entry = self.model.find(receipt)
            if entry is not None:
                entry.hidden_until_s = self.now_s + lease_s

    @rule(seconds=st.sampled_from([1.0, 6.0, 31.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.now_s += seconds
        self.promote()

    @rule(settings=SETTINGS)
    def reconfigure(self, settings: EngineSettings) -> None:
        self.state.reconfigure(settings)
        self.model.settings = settings

    @rule(dice=st.integers(0, 9))
    def purge(self, dice: int) -> None:
        if dice == 0:
            assert self.state.clear() == len(self.model.entries)
            self.model.entries.clear()

    def promote(self) -> None:
        lapse = self.state.promote(self.now_s) or Lapse()
        self.dead_letter(lapse.dead)
        self.model.promote(self.now_s)

    def dead_letter(self, records: list[Record]) -> None:
        self.dead += [record.message.id for record in records]
        self.state.finish_acked(records)

    @invariant()
    def both_agree(self) -> None:
        if not hasattr(self, "state"):
            return
        in_flight = [e for e in self.model.entries if e.is_in_flight]
        hidden = [
            e for e in self.model.entries if not e.is_in_flight and e.hidden_until_s > self.now_s
        ]
        stats = self.state.stats(self.now_s)
        assert (stats.in_flight, stats.delayed) == (len(in_flight), len(hidden))
        assert stats.visible == len(self.model.entries) - len(in_flight) - len(hidden)
        visible = [e.id for e in self.model.in_order() if e not in in_flight + hidden]
        assert [m.id for m in self.state.peek(100)] == visible
        assert sorted(self.dead) == sorted(self.model.dead)


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = hypothesis_settings(
    max_examples=100, stateful_step_count=40, deadline=None
)

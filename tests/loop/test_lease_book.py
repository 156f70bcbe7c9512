"""LeaseBook: who is due, who has expired, and when to look again, whatever the order of entry."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pump.loop.leases import LeaseBook
from pump.message import Delivery
from pump.testing.builders import a_delivery

LEASE_S = 100.0
# Whole numbers, so that the model's arithmetic and the book's are the same to the last bit.
MOMENTS = st.integers(0, 250).map(float)


class LeaseBookMachine(RuleBasedStateMachine):
    """Against a dict that is looked through every time."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: dict[Delivery, float] = {}
        self.forgotten: list[Delivery] = []
        self.now_s = 1_000.0

    @initialize(renew=st.booleans(), max_lease_s=st.sampled_from([None, 100.0, 150.0, 300.0]))
    def open(self, renew: bool, max_lease_s: float | None) -> None:
        self.renew = renew
        self.max_lease_s = max_lease_s
        self.book = LeaseBook(lease_s=LEASE_S, renew=renew, max_lease_s=max_lease_s)

    @rule(ends_in_s=st.lists(MOMENTS, max_size=5))
    def watch(self, ends_in_s: list[float]) -> None:
        deliveries = [a_delivery(lease_expires_at_s=self.now_s + each) for each in ends_in_s]
        self.book.watch(deliveries)
        self.ends.update((each, each.lease_expires_at_s) for each in deliveries)

    @rule(seconds=MOMENTS)
    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds

    @precondition(lambda self: self.ends)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        delivery = data.draw(st.sampled_from(list(self.ends)))

        assert self.book.forget(delivery)
        assert not self.book.forget(delivery)

        del self.ends[delivery]
        self.forgotten.append(delivery)

    @precondition(lambda self: self.ends)
    @rule(data=st.data())
    def extended(self, data: st.DataObject) -> None:
        delivery = data.draw(st.sampled_from(list(self.ends)))
        self.book.extended(delivery, self.now_s)
        self.ends[delivery] = self.now_s + LEASE_S

    @precondition(lambda self: self.forgotten)
    @rule(data=st.data())
    def extended_too_late(self, data: st.DataObject) -> None:
        self.book.extended(data.draw(st.sampled_from(self.forgotten)), self.now_s)

    def may_extend(self, delivery: Delivery) -> bool:
        if not self.renew:
            return False
        received_at_s = delivery.lease_expires_at_s - LEASE_S
        limit_s = self.max_lease_s
        return limit_s is None or self.now_s + LEASE_S - received_at_s <= limit_s

    @invariant()
    def holds_what_was_watched_and_not_forgotten(self) -> None:
        assert len(self.book) == len(self.ends)
        assert set(self.book.held()) == set(self.ends)
        assert all(delivery in self.book for delivery in self.ends)
        assert not any(delivery in self.book for delivery in self.forgotten)

    @invariant()
    def due_are_those_past_half_or_nearly_so(self) -> None:
        due = self.book.due(self.now_s)

        horizon_s = self.now_s + LEASE_S / 2 + LEASE_S / 10
        assert set(due) == {
            delivery
            for delivery, end_s in self.ends.items()
            if end_s <= horizon_s and self.may_extend(delivery)
        }
        assert [self.ends[each] for each in due] == sorted(self.ends[each] for each in due)

    @invariant()
    def expired_are_those_whose_end_has_passed(self) -> None:
        expired = self.book.expired(self.now_s)

        assert set(expired) == {d for d, end_s in self.ends.items() if end_s <= self.now_s}

    @invariant()
    def wakes_for_the_first_end_or_the_first_half(self) -> None:
        moments = [*self.ends.values()]
        moments += [
            end_s - LEASE_S / 2
            for delivery, end_s in self.ends.items()
            if self.may_extend(delivery)
        ]
        assert self.book.wake_at_s(self.now_s) == min(moments, default=None)


TestLeaseBook = LeaseBookMachine.TestCase


def test_when_the_lease_has_a_ceiling_then_it_is_extended_up_to_it_and_no_further() -> None:
    book = LeaseBook(lease_s=30, renew=True, max_lease_s=60)
    delivery = a_delivery(lease_expires_at_s=1_030)
    book.watch([delivery])

    due_in_time, due_too_late = book.due(1_030), book.due(1_030.1)

    assert due_in_time == [delivery]
    assert due_too_late == []
    assert book.wake_at_s(1_030.1) == 1_030


def test_when_a_lease_is_a_tenth_before_its_half_then_it_goes_along_with_the_others() -> None:
    book = LeaseBook(lease_s=100, renew=True, max_lease_s=None)
    soon, later = a_delivery(lease_expires_at_s=160), a_delivery(lease_expires_at_s=160.5)
    book.watch([later, soon])

    assert book.due(100) == [soon]
    assert book.wake_at_s(100) == 110

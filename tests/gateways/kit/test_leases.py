"""Leases: good for one settlement, until they end (R5, R6, R9, R16, laws 1 and 3)."""

from __future__ import annotations

from math import inf

from hypothesis import given, strategies as st

from gateways._kit.leases import Alarm, Lease, Leases, WatchedLeases
from pump.testing import VirtualClock


def held(*receipts: str, ends_at_s: float = 30.0) -> Leases[Lease]:
    found: Leases[Lease] = Leases()
    for receipt in receipts:
        found.hold(receipt, Lease(ends_at_s))
    return found


class Watch:
    """Leases that are watched, and when each was found to be due."""

    def __init__(self, **ends_at_s: float) -> None:
        self.clock = VirtualClock()
        self._began_s = self.clock.now_s()
        self.leases: WatchedLeases[Lease] = WatchedLeases(self.clock, self._act)
        self.due: list[tuple[str, float]] = []
        self._receipts: dict[Lease, str] = {}
        for receipt, end_s in ends_at_s.items():
            self.hold(receipt, end_s)

    @property
    def now_s(self) -> float:
        return self.clock.now_s() - self._began_s

    def hold(self, receipt: str, end_s: float) -> None:
        lease = Lease(self._began_s + end_s)
        self._receipts[lease] = receipt
        self.leases.hold(receipt, lease)

    def take(self, receipt: str) -> None:
        self.leases.take(receipt, self.clock.now_s())

    def extend(self, receipt: str, end_s: float) -> None:
        self.leases.extend(receipt, self._began_s + end_s)

    def _act(self, due: list[Lease]) -> None:
        assert not any(each.is_taken or each.ends_at_s > self.clock.now_s() for each in due)
        self.due += [(self._receipts[each], self.now_s) for each in due]


def test_when_a_lease_is_held_then_it_can_be_taken_once() -> None:
    leases = held("a")

    first, second = leases.take("a", 1.0), leases.take("a", 1.0)

    assert first is not None
    assert second is None


def test_when_a_lease_is_taken_then_it_can_still_be_found() -> None:
    """Law 3: it is ours while a settlement is on its way, and may be extended."""
    leases = held("a")

    taken = leases.take("a", 1.0)

    assert leases.find("a", 29.9) is taken
    assert leases.find("a", 30.0) is None


def test_when_a_settlement_did_not_come_about_then_it_can_be_tried_again() -> None:
    leases = held("a")
    leases.take("a", 1.0)

    leases.give_back("a")

    assert leases.take("a", 1.0)


def test_when_a_lease_is_spent_unknown_or_late_then_it_is_refused() -> None:
    leases = held("spent", "late")
    leases.spend("spent")

    assert leases.take("spent", 1.0) is None
    assert leases.take("unknown", 1.0) is None
    assert leases.take("late", 30.0) is None
    assert "spent" not in leases


def test_when_a_lease_is_extended_then_the_receipt_is_good_for_longer() -> None:
    leases = held("a")

    leases.extend("a", 60.0)

    assert leases.take("a", 59.0)


def test_when_a_lease_is_gone_then_an_extension_does_not_bring_it_back() -> None:
    """R16."""
    leases = held("a")
    leases.spend("a")

    leases.extend("a", 100.0)
    leases.give_back("a")

    assert leases.take("a", 1.0) is None
    assert len(leases) == 0


def test_when_a_lease_is_extended_while_it_is_settled_then_it_stays_taken() -> None:
    """Law 1: the keeper and the settler work side by side."""
    leases = held("a")
    leases.take("a", 1.0)

    leases.extend("a", 60.0)

    assert leases.take("a", 1.0) is None


def test_when_what_is_over_is_forgotten_then_what_is_being_settled_stays() -> None:
    """Nothing grows without end."""
    leases = held("old", "taken", "older")
    leases.take("taken", 1.0)
    leases.hold("new", Lease(90.0))

    leases.forget_over(60.0)
    kept = len(leases)
    leases.spend("taken")
    leases.forget_over(60.0)

    assert (kept, len(leases)) == (3, 1)


async def test_when_watched_leases_end_then_each_is_due_once() -> None:
    watch = Watch(b=2.0, a=1.0, c=3.0)

    await watch.clock.advance(2.5)

    assert watch.due == [("a", 1.0), ("b", 2.0)]
    assert watch.clock.next_due_in_s() == 0.5


async def test_when_a_settlement_is_on_its_way_then_its_lease_is_not_due_until_given_back() -> None:
    watch = Watch(a=1.0)
    watch.take("a")

    await watch.clock.advance(2.0)
    meanwhile = [*watch.due]
    watch.leases.give_back("a")
    await watch.clock.advance(0.0)

    assert meanwhile == []
    assert watch.due == [("a", 2.0)]


async def test_when_a_watched_lease_is_extended_then_it_is_due_at_its_new_end() -> None:
    watch = Watch(a=1.0)

    watch.extend("a", 5.0)
    await watch.clock.advance(9.0)

    assert watch.due == [("a", 5.0)]


def test_when_a_watched_lease_is_extended_again_and_again_then_nothing_grows() -> None:
    watch = Watch(a=1.0)

    for seconds in range(100):
        watch.extend("a", 1.0 + seconds)
        watch.leases.watch("a")

    assert len(watch.leases._looks) == 1


async def test_when_an_end_is_moved_nearer_then_it_is_looked_at_sooner() -> None:
    watch = Watch(a=9.0)

    watch.extend("a", 5.0)
    watch.leases.watch("a")
    await watch.clock.advance(20.0)

    assert watch.due == [("a", 5.0)]


async def test_when_a_lease_is_to_be_looked_at_later_then_it_is_not_due_before() -> None:
    watch = Watch(a=1.0)
    await watch.clock.advance(1.0)

    watch.leases.watch("a", at_s=watch.clock.now_s() + 0.5)
    await watch.clock.advance(9.0)

    assert watch.due == [("a", 1.0), ("a", 1.5)]


async def test_when_a_watched_lease_is_spent_then_it_is_never_looked_at_again() -> None:
    watch = Watch(a=1.0)

    watch.leases.spend("a")
    watch.leases.watch("a")
    await watch.clock.advance(9.0)

    assert watch.due == []
    assert list(watch.leases) == []


async def test_when_leases_are_no_longer_watched_then_nothing_is_due_until_more_is_held() -> None:
    watch = Watch(a=1.0)
    watch.take("a")

    watch.leases.unwatch()
    watch.leases.give_back("a")
    await watch.clock.advance(9.0)
    had_timer = watch.clock.next_due_in_s() is not None
    watch.hold("b", 10.0)
    await watch.clock.advance(1.0)

    assert not had_timer
    assert watch.due == [("a", 10.0), ("b", 10.0)]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["hold", "take", "give back", "spend", "extend", "look"]),
        st.sampled_from("abc"),
        st.integers(0, 5),
    ),
    max_size=60,
)


@given(STEPS)
async def test_whatever_happens_then_every_lease_that_ends_is_due_once_and_none_is_before(
    steps: list[tuple[str, str, int]],
) -> None:
    watch = Watch()
    was_due: set[str] = set()
    for step, receipt, value in steps:
        match step:
            case "hold" if receipt not in watch.leases:
                watch.hold(receipt, watch.now_s + value)
            case "take":
                watch.take(receipt)
            case "give back" if receipt not in was_due:
                watch.leases.give_back(receipt)
            case "spend":
                watch.leases.spend(receipt)
                was_due.discard(receipt)
            case "extend" if receipt not in was_due:
                watch.extend(receipt, watch.now_s + value)
                watch.leases.watch(receipt)
            case "look":
                await watch.clock.advance(value)
                found = [each for each, _ in watch.due]
                assert not was_due.intersection(found)
                assert len(found) == len(set(found))
                was_due.update(found)
                watch.due.clear()
    left = {each for each in "abc" if each in watch.leases} - was_due
    taken = {each for each in left if watch.leases.take(each, -inf) is None}
    for each in left - taken:
        watch.leases.give_back(each)
    await watch.clock.advance(10.0)
    assert {each for each, _ in watch.due} == left - taken


async def test_when_an_alarm_is_asked_for_several_moments_then_it_rings_at_the_first() -> None:
    clock = VirtualClock()
    rung: list[float] = []
    alarm = Alarm(clock, lambda: rung.append(clock.now_s()))
    began_s = clock.now_s()

    for delay_s in (5.0, 2.0, 3.0):
        alarm.ring_by(began_s + delay_s)
    await clock.advance(10.0)

    assert rung == [began_s + 2.0]


async def test_when_an_alarm_is_moved_or_cancelled_then_it_rings_no_more_for_what_was_before() -> (
    None
):
    clock = VirtualClock()
    rung: list[float] = []
    alarm = Alarm(clock, lambda: rung.append(clock.now_s()))
    began_s = clock.now_s()

    alarm.ring_at(began_s + 2.0)
    alarm.ring_at(began_s + 4.0)
    await clock.advance(5.0)
    alarm.ring_at(began_s + 6.0)
    alarm.cancel()
    await clock.advance(5.0)

    assert rung == [began_s + 4.0]


def test_when_a_lease_has_no_end_then_it_is_never_over() -> None:
    assert not Lease(inf).is_over(1e12)

"""Lanes: order within a group, the rest at once, nothing lost and nothing twice (R38, T7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from pump.loop.lanes import Lanes
from pump.message import Delivery
from pump.testing.builders import a_delivery, a_message

# Mostly one group: what is hard happens far behind a head.
GROUPS = st.sampled_from(["a", "a", "a", "b", None])


@attrs.define(eq=False)
class LanesModel:
    """Every delivery is in exactly one of four places; all else is worked out from that."""

    single_lane: bool
    waiting: list[Delivery] = attrs.field(factory=list)
    running: list[Delivery] = attrs.field(factory=list)
    handed_back: list[Delivery] = attrs.field(factory=list)
    gone: list[Delivery] = attrs.field(factory=list)
    ready: list[Delivery] = attrs.field(factory=list)
    """Those of `waiting` that may start, in the order in which they became startable."""

    def key(self, delivery: Delivery) -> str | None:
        group = delivery.message.group
        return "the queue" if group is None and self.single_lane else group

    def group_of(self, delivery: Delivery, among: Sequence[Delivery]) -> list[Delivery]:
        key = self.key(delivery)
        return [] if key is None else [each for each in among if self.key(each) == key]

    def look_for_startable(self) -> None:
        for delivery in self.waiting:
            is_first = self.group_of(delivery, self.waiting)[:1] in ([], [delivery])
            is_free = not self.group_of(delivery, self.running)
            if is_first and is_free and delivery not in self.ready:
                self.ready.append(delivery)
        self.ready = [each for each in self.ready if each in self.waiting]


class LanesMachine(RuleBasedStateMachine):
    """Lanes against the model."""

    single_lane = False

    def __init__(self) -> None:
        super().__init__()
        self.lanes = Lanes(single_lane=self.single_lane)
        self.model = LanesModel(self.single_lane)
        self.added: list[Delivery] = []

    @rule(group=GROUPS)
    def add(self, group: str | None) -> None:
        delivery = a_delivery(a_message(group=group))
        self.lanes.add(delivery)
        self.added.append(delivery)
        self.model.waiting.append(delivery)
        self.model.look_for_startable()

    @rule()
    def take(self) -> None:
        taken = self.lanes.take()

        if not self.model.ready:
            assert taken is None
            return
        assert taken is self.model.ready[0]
        assert not self.model.group_of(taken, self.model.running)
        self.model.waiting.remove(taken)
        self.model.running.append(taken)
        self.model.look_for_startable()

    @precondition(lambda self: self.model.running)
    @rule(data=st.data(), is_gone=st.booleans())
    def finish(self, data: st.DataObject, is_gone: bool) -> None:
        delivery = data.draw(st.sampled_from(self.model.running))
        successors = [] if is_gone else self.model.group_of(delivery, self.model.waiting)

        returned = self.lanes.finish(delivery, is_gone=is_gone)

        self.expect_back(returned, successors)
        self.model.running.remove(delivery)
        (self.model.gone if is_gone else self.model.handed_back).append(delivery)
        self.model.look_for_startable()

    @precondition(lambda self: self.model.waiting)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        delivery = data.draw(st.sampled_from(self.model.waiting))
        group = self.model.group_of(delivery, self.model.waiting)
        successors = group[group.index(delivery) + 1 :] if group else []

        returned = self.lanes.drop(delivery)

        assert returned is not None
        self.expect_back(returned, successors)
        self.model.waiting.remove(delivery)
        self.model.handed_back.append(delivery)
        self.model.look_for_startable()

    @precondition(lambda self: len(self.added) > len(self.model.waiting))
    @rule(data=st.data())
    def drop_one_that_does_not_wait(self, data: st.DataObject) -> None:
        others = [each for each in self.added if each not in self.model.waiting]

        assert self.lanes.drop(data.draw(st.sampled_from(others))) is None

    @rule()
    def clear(self) -> None:
        returned = self.lanes.clear()

        assert set(returned) == set(self.model.waiting)
        assert len(returned) == len(self.model.waiting)
        for delivery in returned:
            in_order = self.model.group_of(delivery, self.model.waiting)
            assert self.model.group_of(delivery, returned) == in_order
        self.model.handed_back.extend(returned)
        self.model.waiting.clear()
        self.model.look_for_startable()

    def expect_back(self, returned: Sequence[Delivery], expected: list[Delivery]) -> None:
        assert list(returned) == expected
        self.model.handed_back.extend(expected)
        self.model.waiting = [each for each in self.model.waiting if each not in expected]

    @invariant()
    def counts_agree(self) -> None:
        assert self.lanes.ready_count == len(self.model.ready)
        assert self.lanes.waiting_count == len(self.model.waiting)

    @invariant()
    def every_delivery_is_in_exactly_one_place(self) -> None:
        model = self.model
        places: list[Any] = [*model.waiting, *model.running, *model.handed_back, *model.gone]
        assert len(places) == len(self.added)
        assert set(places) == set(self.added)

    @invariant()
    def no_two_of_a_group_run(self) -> None:
        for delivery in self.model.running:
            assert self.model.group_of(delivery, self.model.running) in ([], [delivery])


class SingleLaneMachine(LanesMachine):
    """With a guarantee of order, the messages without a group form one."""

    single_lane = True


TestLanes = LanesMachine.TestCase
TestSingleLane = SingleLaneMachine.TestCase


def test_when_a_head_is_acked_then_its_successor_starts_next_in_turn() -> None:
    lanes = Lanes()
    head, successor, other = (a_delivery(a_message(group=group)) for group in ("a", "a", "b"))
    for delivery in (head, successor, other):
        lanes.add(delivery)

    assert lanes.take() is head
    assert lanes.finish(head, is_gone=True) == ()

    assert [lanes.take(), lanes.take(), lanes.take()] == [other, successor, None]


def test_when_a_head_fails_then_only_its_own_group_is_handed_back() -> None:
    """T7."""
    lanes = Lanes()
    head, successor, last, other = (
        a_delivery(a_message(group=group)) for group in ("a", "a", "a", "b")
    )
    for delivery in (head, successor, last, other):
        lanes.add(delivery)
    lanes.take()

    handed_back = lanes.finish(head, is_gone=False)

    assert list(handed_back) == [successor, last]
    assert lanes.take() is other


def test_when_a_head_comes_again_before_we_gave_it_up_then_it_is_not_handed_back() -> None:
    """R9: by the broker's clock the lease was over a moment earlier, and no attempt is wasted."""
    lanes = Lanes()
    message = a_message(group="g")
    first, again = a_delivery(message, attempt=1), a_delivery(message, attempt=2)
    successor = a_delivery(a_message(group="g"))
    for delivery in (first, again, successor):
        lanes.add(delivery)
    assert lanes.take() is first

    assert lanes.finish(first, is_gone=False) == ()

    assert lanes.take() is again
    assert lanes.take() is None
    assert lanes.finish(again, is_gone=False) == (successor,)


def test_when_one_behind_is_dropped_then_only_those_after_it_go_back_and_in_order() -> None:
    lanes = Lanes()
    head, before, dropped, after, last = (a_delivery(a_message(group="a")) for _ in range(5))
    for delivery in (head, before, dropped, after, last):
        lanes.add(delivery)
    lanes.take()

    assert lanes.drop(dropped) == [after, last]

    assert lanes.waiting_count == 1
    lanes.finish(head, is_gone=True)
    assert lanes.take() is before


def test_when_the_queue_keeps_no_order_then_a_groups_messages_start_at_once() -> None:
    """R38: on a fair queue a group is a tenant, not a line."""
    lanes = Lanes()
    tenants = [replace(a_delivery(a_message(group="north")), is_ordered=False) for _ in range(3)]

    for delivery in tenants:
        lanes.add(delivery)

    assert [lanes.take() for _ in tenants] == tenants
    assert lanes.finish(tenants[0], is_gone=False) == ()

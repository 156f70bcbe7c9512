"""How many tasks a slice has, and when a task ends: pure decisions."""

from __future__ import annotations

import attrs
import pytest

from pump import Subscription
from pump.ports import QueueStats
from pump.spark.run.plan import Depth, Probing, count_tasks, handful
from pump.spark.run.summary import TaskEnd
from pump.spark.run.task import QUIET_S, SILENT_S, SPEECHLESS_S, TaskState, task_end

from .rig import Order


@pytest.mark.parametrize(
    ("ready", "slots", "most", "tasks"),
    [
        (0, 8, None, 0),
        (1, 8, None, 1),
        (10, 8, None, 1),
        (11, 8, None, 2),
        (1_000, 8, None, 8),
        (1_000, 8, 3, 3),
        (1_000, 2, 5, 5),
        (5, 8, 3, 1),
        (1_000, 0, None, 1),
        (-1, 8, None, 0),
    ],
)
def test_when_the_depth_is_known_then_so_is_the_number_of_tasks(
    ready: int, slots: int, most: int | None, tasks: int
) -> None:
    """R78: back-pressure from the depth of the queues to the number of tasks."""
    assert count_tasks(ready, handful=10, slots=slots, most=most) == tasks


def test_when_subscriptions_handle_much_at_once_then_a_task_wants_as_much() -> None:
    """R78: another task is worth it when it has something to do."""
    subscriptions = [
        Subscription(queue="a", request=Order, concurrency=20),
        Subscription(queue="b", request=Order, concurrency=500),
    ]

    assert handful(subscriptions, flush=200) == 220
    assert handful([], flush=200) == 1


def test_when_there_are_several_queues_then_their_depths_add_up() -> None:
    """R78: depth is summed over the queues."""
    first = QueueStats(name="a", visible=1, in_flight=2, delayed=3)
    second = QueueStats(name="b", visible=10, in_flight=20, delayed=30)

    depth = Depth.of([first, second])

    assert depth == Depth(ready=11, in_flight=22, delayed=33)
    assert depth.total == 66


BUSY = TaskState(in_flight=3, quiet_s=0.01)
IDLE = TaskState(quiet_s=QUIET_S)


@pytest.mark.parametrize(
    ("state", "end"),
    [
        (BUSY, None),
        (attrs.evolve(BUSY, is_stop_asked=True), TaskEnd.STOPPED),
        (attrs.evolve(BUSY, has_quota=False), TaskEnd.MESSAGES),
        (attrs.evolve(BUSY, has_time=False), TaskEnd.TIME),
        (IDLE, None),
        (attrs.evolve(IDLE, ready=0), TaskEnd.EMPTY),
        (attrs.evolve(IDLE, ready=0, in_flight_elsewhere=2), None),
        (attrs.evolve(IDLE, ready=0, in_flight_elsewhere=2, empty_looks=1), TaskEnd.EMPTY),
        (attrs.evolve(IDLE, ready=4), None),
        (attrs.evolve(IDLE, ready=4, quiet_s=SILENT_S), None),
        (attrs.evolve(IDLE, ready=4, quiet_s=SILENT_S, empty_looks=1), TaskEnd.EMPTY),
        (attrs.evolve(IDLE, ready=None, quiet_s=SPEECHLESS_S), TaskEnd.EMPTY),
        (attrs.evolve(IDLE, ready=0, in_flight=1), None),
        (attrs.evolve(IDLE, ready=0, quiet_s=0.0), None),
    ],
)
def test_when_a_task_has_done_its_part_then_it_ends_and_not_before(
    state: TaskState, end: TaskEnd | None
) -> None:
    """R78: bounded by messages and time, over when nothing is left."""
    assert task_end(state) is end


def test_when_messages_stay_in_flight_then_somebody_receives_after_a_while() -> None:
    """R78: NATS counts what is due again as in flight until somebody asks for it."""
    probing, stuck = Probing(), Depth(in_flight=3)

    due = [second for second in range(200) if probing.is_due(stuck, float(second))]

    # After 5, 10, 20, 40 and 60 seconds, each from the look that follows.
    assert due == [5, 16, 37, 78, 139]


def test_when_something_else_is_said_of_the_queues_then_the_wait_begins_anew() -> None:
    """R78: a slice follows without it, or nothing is there."""
    probing, stuck = Probing(), Depth(in_flight=3)

    for now_s, depth in enumerate([stuck, Depth(ready=1, in_flight=3), Depth(), Depth(delayed=2)]):
        assert not probing.is_due(depth, 4.0 * now_s)

    assert not probing.is_due(stuck, 16.0)
    assert not probing.is_due(stuck, 20.0)
    assert probing.is_due(stuck, 21.0)

"""Names beside a queue, and the steps of delays."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from pamqp.commands import Queue

from gateways.rabbitmq.names import (
    MAX_DELAY_S,
    beside,
    checked_name,
    delay_queue,
    session_lock,
    session_queue,
    sessions_name,
    step_ms,
)
from pump.errors import ConfigurationError

queues = st.from_regex(r"[a-zA-Z0-9\-_.:@#,/+ ]{1,255}", fullmatch=True)


@given(st.floats(0.0001, MAX_DELAY_S))
def test_when_a_delay_is_counted_in_steps_then_it_is_never_shorter_and_hardly_longer(
    delay_s: float,
) -> None:
    step_s = step_ms(delay_s) / 1000

    assert delay_s - 2e-6 <= step_s <= delay_s + max(delay_s / 16, 0.010) + 0.001


def test_when_delays_are_of_all_sizes_then_few_queues_serve_them() -> None:
    """Each step is a queue at the broker."""
    steps = {step_ms(second) for second in range(1, 3601)}

    assert len(steps) < 200


def test_when_a_sum_is_a_little_off_then_it_is_the_same_step() -> None:
    assert step_ms(0.1 + 0.2) == step_ms(0.3) == 304


@given(queues, st.text())
def test_when_names_are_made_then_the_sdk_takes_them(queue: str, group: str) -> None:
    """However long the queue's name, and whatever the group is."""
    for name in (delay_queue(queue, 10), session_queue(queue, group), session_lock(queue, group)):
        assert len(name.encode()) <= 255
        Queue.Declare(queue=name)


@given(queues, st.text(), st.text())
def test_when_groups_differ_then_so_do_their_queues(queue: str, one: str, other: str) -> None:
    assert (session_queue(queue, one) == session_queue(queue, other)) == (one == other)
    assert session_queue(queue, one) != session_lock(queue, one)


def test_when_names_are_short_then_people_can_read_them() -> None:
    assert delay_queue("orders", 1024) == "orders.delay.1024"
    assert session_queue("orders", "customer-7") == "orders.session:customer-7"
    assert sessions_name("orders") == "orders.sessions"
    assert beside("o" * 255, "ready").startswith("pump.")


@pytest.mark.parametrize("name", ["", "o" * 256, "örders", "a*b", "amq.orders", "a\nb", "\ud800"])
def test_when_a_queue_cannot_be_named_so_then_the_error_says_what_can(name: str) -> None:
    """R56."""
    with pytest.raises(ConfigurationError) as caught:
        checked_name(name)

    assert caught.value.field == "queue"

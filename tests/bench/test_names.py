import re

import pytest
from hypothesis import given, strategies as st

from pump.bench.scratch import ScratchNames, scratch_name

ANY_BROKER = re.compile(r"[A-Za-z0-9_-]{1,75}(\.fifo)?")


@pytest.mark.parametrize(
    ("queue", "name"),
    [
        ("orders", "orders-bench-1a2b"),
        ("orders.fifo", "orders-bench-1a2b.fifo"),
        ("arn:aws:sqs:eu-west-1:123456789012:orders.fifo", "orders-bench-1a2b.fifo"),
        ("https://sqs.eu-west-1.amazonaws.com/123456789012/orders", "orders-bench-1a2b"),
        ("orders.eu/new", "new-bench-1a2b"),
        ("Bestellungen für Köln", "Bestellungen-f-r-K-ln-bench-1a2b"),
        ("…", "queue-bench-1a2b"),
    ],
)
def test_the_name_tells_whose_it_is_and_that_it_is_none(queue: str, name: str) -> None:
    assert scratch_name(queue, "1a2b") == name


@given(st.text(min_size=1))
def test_every_broker_takes_the_name(queue: str) -> None:
    name = scratch_name(queue, "0123abcd")

    assert ANY_BROKER.fullmatch(name)
    assert name != queue


@given(st.lists(st.text(min_size=1, max_size=80), min_size=1, max_size=20, unique=True))
def test_no_two_queues_share_one(queues: list[str]) -> None:
    names = ScratchNames("0123abcd")

    given_names = [names.of(queue) for queue in queues]

    assert len(set(given_names)) == len(queues)
    assert [names.of(queue) for queue in queues] == given_names
    assert [names.of(name) for name in given_names] == given_names

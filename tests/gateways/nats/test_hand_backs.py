"""The number of hand-backs: where it is kept, and what it takes off."""

from __future__ import annotations

import pytest

from gateways.nats.receipts import attempt_after, key_of
from gateways.nats.wire import NatsArrival


@pytest.mark.parametrize(
    ("delivered", "handed_back", "attempt"), [(1, 0, 1), (4, 3, 1), (4, 1, 3), (2, 5, 1)]
)
def test_when_it_was_handed_back_then_that_is_no_attempt(
    delivered: int, handed_back: int, attempt: int
) -> None:
    """T5; a server that forgot deliveries makes no attempt of less than one."""
    assert attempt_after(delivered, handed_back) == attempt


def test_when_a_stream_was_made_anew_then_its_messages_have_other_keys() -> None:
    arrival = NatsArrival(stream="orders", consumer="pump", attempt=2, sequence=1, stored_at_ns=17)
    later = NatsArrival(stream="orders", consumer="pump", attempt=2, sequence=1, stored_at_ns=18)

    assert key_of(arrival) == "$KV.pumphouse-hand-backs.orders.1.17"
    assert key_of(arrival) != key_of(later)

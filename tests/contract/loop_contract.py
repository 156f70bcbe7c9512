"""What of the contract can differ by the event loop, for gateways that run all of it on asyncio's.

Tests of lost connections run on both loops wherever there is a real server: see `conftest.py`. What
mostly waits for leases is left out: on real brokers that would cost the run a minute.
"""

from __future__ import annotations

from pump.testing.contract.concurrency import (
    BlockingContract,
    ConcurrencyContract,
    SessionBlockingContract,
)
from pump.testing.contract.durability import DurabilityContract, LifecycleContract
from pump.testing.contract.hostile import HostileContract
from pump.testing.contract.laws import LawContract
from pump.testing.contract.sending import ReceivingContract


class LoopContract(LifecycleContract, BlockingContract, SessionBlockingContract, HostileContract):
    """Waiting and its cancellation, many at once, closing and opening again, what blocks the loop,
    and the pump with handlers of every kind.
    """


for _test in (
    ReceivingContract.test_when_a_message_is_sent_then_a_waiting_receive_returns_it_at_once,
    ReceivingContract.test_when_a_waiting_receive_is_cancelled_then_it_ends_at_once_and_takes_nothing,
    ReceivingContract.test_when_a_receive_is_cancelled_as_a_message_arrives_then_nothing_is_hidden,
    ReceivingContract.test_when_a_receive_is_cancelled_as_it_begins_then_nothing_is_hidden,
    ConcurrencyContract.test_when_many_ask_for_many_then_each_message_is_delivered_once,
    ConcurrencyContract.test_when_many_ack_one_delivery_then_one_of_them_succeeds,
    DurabilityContract.test_when_reopened_then_every_message_is_there_exactly_and_in_order,
    DurabilityContract.test_when_reopened_then_what_was_in_flight_is_visible,
    LawContract.test_law_5_a_restart_costs_what_was_not_started_no_retry,
    LawContract.test_law_6_cancellation_is_never_swallowed,
):
    setattr(LoopContract, _test.__name__, _test)

"""No field of `Capabilities` can be declared falsely: a liar for each, and how it is told."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import attrs
import pytest

from gateways._engine.engine import QueueEngine
from gateways.local import LocalGateway
from gateways.memory import MemoryGateway
from pump.capabilities import Capabilities
from pump.testing import VirtualClock
from pump.testing.contract import Rig
from pump.testing.contract.claims import ClaimContract, contradictions
from pump.testing.contract.concurrency import BlockingContract, blocking_calls
from pump.testing.contract.durability import SharingContract

from .conftest import CountCalls
from .naive import NaiveGateway
from .saboteurs.claims import BlocksTheLoop, WaitsForAThread
from .teeth import recorded

LIARS = {
    "gateway": "SaysItsNameIsNoScheme",
    "ordering_modes": "PretendsToDoLifo",
    "has_strict_order": "PretendsToBeStrict",
    "has_groups": "IgnoresGroups",
    "has_deduplication": "IgnoresDeduplication",
    "has_sessions": "LetsConsumersIntoASession",
    "has_session_choice": "PretendsToLetOneChooseTheSession",
    "has_native_redrive": "NeverRedrives",
    "has_uncounted_abandon": "CountsWhatIsAbandoned",
    "has_peek": "PeeksThoughItSaysItCannot",
    "has_purge": "PurgesWhatIsVisibleOnly",
    "has_exact_stats": "CountsWithoutLookingAtTheClock",
    "has_lease_expiry": "NeverEndsALease",
    "is_durable": "KeepsMessagesInMemoryOnly",
    "is_shared": "SaysItIsShared",
    "spans_machines": "SaysItSpansMachines",
    "max_delay_s": "SaysADelayIsASecondAtMost",
    "max_defer_s": "DefersForLongerThanItSays",
    "max_lease_s": "HoldsForLongerThanItSays",
    "max_body_bytes": "TakesSmallerBodiesThanItSays",
    "receive_batch": "SaysAReceiveReturnsOne",
    "settle_batch": "SaysARequestSettlesOne",
    "settle_linger_s": "SaysEveryAckMayWaitForAMinute",
    "max_settle_calls": "LosesWhatSettlesAtOnce",
    "max_pollers": "FailsWhenTwoPoll",
    "emulated": "SaysItEmulatesWhatItLacks",
}
"""A saboteur for each field, whose other promises hold."""


class LyingMemory(MemoryGateway):
    """Memory, with other words about itself."""

    def __init__(self, clock: VirtualClock, **claims: object) -> None:
        super().__init__(clock)
        self.claims = claims

    @property
    def capabilities(self) -> Capabilities:
        return attrs.evolve(super().capabilities, **self.claims)  # type: ignore[arg-type]


class LyingLocal(LocalGateway):
    """A folder of this machine that says others can reach it."""

    @property
    def capabilities(self) -> Capabilities:
        return attrs.evolve(super().capabilities, spans_machines=True)


def test_when_a_field_can_be_declared_then_a_liar_is_found_out() -> None:
    assert set(LIARS) == {field.name for field in attrs.fields(Capabilities)}
    assert set(LIARS.values()) - set(recorded()) == set()


@pytest.mark.parametrize(
    ("claims", "test"),
    [
        (
            {"gateway": "sqs"},
            "it_is_called_by_a_scheme_then_no_other_package_has_that_scheme",
        ),
        ({"max_delay_s": 1.0}, "a_delay_is_longer_than_it_says_then_the_send_is_refused"),
        (
            {"receive_batch": 1},
            "more_are_asked_for_then_one_receive_returns_as_many_as_it_says",
        ),
        (
            {"receive_batch": 5_000},
            "more_are_asked_for_then_one_receive_returns_as_many_as_it_says",
        ),
        (
            {"settle_batch": 1},
            "settled_in_bulk_then_a_request_takes_as_many_as_it_says",
        ),
        (
            {"settle_batch": 20_000},
            "settled_in_bulk_then_a_request_takes_as_many_as_it_says",
        ),
        (
            {"has_groups": False},
            "it_says_that_it_knows_no_groups_then_nothing_waits_for_its_group",
        ),
        (
            {"has_deduplication": False},
            "it_says_that_it_knows_no_duplicates_then_each_arrives_or_is_refused",
        ),
        (
            {"has_sessions": False, "has_session_choice": False},
            "it_says_that_it_has_no_sessions_then_none_can_be_accepted",
        ),
        (
            {"has_native_redrive": False},
            "it_says_that_it_moves_nothing_then_a_message_stays_in_its_queue",
        ),
        (
            {"has_lease_expiry": False},
            "it_says_that_no_lease_ends_then_what_is_held_stays_hidden",
        ),
        ({"max_lease_s": 90.0}, "extended_again_and_again_then_held_for_as_long_as_it_says"),
        (
            {"max_defer_s": 90.0},
            "deferred_for_as_long_as_it_says_then_hidden_until_then_and_no_longer",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_when_memory_lies_then_the_suite_finds_out(
    claims: dict[str, object], test: str, count_calls: CountCalls
) -> None:
    """R76: what a newcomer's gateway did, and passed."""
    clock = VirtualClock()
    rig = Rig(
        gateway=LyingMemory(clock, **claims),
        clock=clock,
        settle_requests=count_calls(QueueEngine, "settle"),
    )

    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await getattr(ClaimContract(), f"test_when_{test}")(rig)


async def test_when_memory_says_it_is_shared_then_another_process_does_not_find_its_message() -> (
    None
):
    """R76."""
    clock = VirtualClock()
    rig = Rig(
        gateway=LyingMemory(clock, is_shared=True), clock=clock, in_another_process=MemoryGateway
    )
    test = SharingContract().test_when_it_is_shared_then_another_process_reaches_its_queues

    with pytest.raises(RuntimeError, match="QueueNotFound"):
        await test(rig)


async def test_when_a_shared_gateway_has_no_way_to_another_process_then_the_rig_says_so() -> None:
    clock = VirtualClock()
    rig = Rig(gateway=LyingMemory(clock, is_shared=True), clock=clock)
    test = SharingContract().test_when_it_is_shared_then_another_process_reaches_its_queues

    with pytest.raises(RuntimeError, match="in_another_process"):
        await test(rig)


async def test_when_a_folder_says_it_spans_machines_then_the_folder_is_named(
    tmp_path: Path,
) -> None:
    """R76."""
    clock = VirtualClock()
    gateway = LyingLocal(tmp_path, clock)
    await gateway.open()
    rig = Rig(gateway=gateway, clock=clock, in_another_process=partial(LyingLocal, tmp_path))
    name = "test_when_it_spans_machines_then_another_process_needs_nothing_of_this_one"
    test = getattr(SharingContract(), name)

    with pytest.raises(AssertionError, match=str(tmp_path)):
        await test(rig)

    await rig.aclose()


@pytest.mark.parametrize(
    ("claims", "complaint"),
    [
        ({"spans_machines": True}, "spans_machines without is_shared"),
        ({"has_session_choice": True}, "has_session_choice without has_sessions"),
        ({"receive_batch": 0}, "receive_batch is below 1"),
        ({"max_delay_s": 0.0}, "max_delay_s is not above zero"),
        ({"ordering_modes": frozenset()}, "ordering_modes is empty"),
        ({"emulated": {"has_peek"}}, "has_peek is emulated, but not there"),
    ],
)
def test_when_claims_contradict_one_another_then_each_is_told(
    claims: dict[str, object], complaint: str
) -> None:
    claimed = attrs.evolve(Capabilities(gateway="mine"), **claims)  # type: ignore[arg-type]

    assert contradictions(claimed) == [complaint]


async def test_when_a_gateway_blocks_the_loop_then_the_call_and_its_place_are_named() -> None:
    clock = VirtualClock()
    rig = Rig(gateway=BlocksTheLoop(clock), clock=clock)
    test = BlockingContract().test_when_its_calls_run_then_none_of_them_blocks_the_event_loop

    with pytest.raises(AssertionError, match=r"time\.sleep, called by settle \(.*claims\.py:\d+"):
        await test(rig)


async def test_when_a_gateway_waits_for_a_thread_then_the_wait_and_its_place_are_named() -> None:
    clock = VirtualClock()
    rig = Rig(gateway=WaitsForAThread(clock), clock=clock)
    test = BlockingContract().test_when_its_calls_run_then_none_of_them_blocks_the_event_loop

    with pytest.raises(AssertionError, match=r"Condition\.wait, called by settle \(.*claims\.py"):
        await test(rig)


async def test_when_a_blocking_call_is_allowed_then_it_is_let_through() -> None:
    clock = VirtualClock()
    rig = Rig(gateway=BlocksTheLoop(clock), clock=clock, may_block={"saboteurs/claims.py:settle"})

    await BlockingContract().test_when_its_calls_run_then_none_of_them_blocks_the_event_loop(rig)


async def test_when_a_thread_blocks_or_a_stranger_then_no_gateway_is_blamed() -> None:
    gateway = NaiveGateway(VirtualClock())

    with blocking_calls(gateway) as found:
        await asyncio.to_thread(Path("/").stat)

    assert found == {}

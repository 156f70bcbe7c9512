"""Plans are plain tables: the same request meets the same fault in every run."""

from __future__ import annotations

from .fault_plan import (
    ALL_FAULTS,
    DROP_BEFORE,
    LOSE_RESPONSE,
    NO_FAULTS,
    THROTTLE,
    Fault,
    FaultPlan,
    delay,
)


def fates(plan: FaultPlan, operation: str, count: int) -> list[Fault | None]:
    return [plan.fault_for(operation, number) for number in range(count)]


def test_when_two_plans_have_one_seed_then_they_agree_whatever_is_asked_first() -> None:
    one, other = FaultPlan.random(7, rate=0.5), FaultPlan.random(7, rate=0.5)
    fates(other, "ReceiveMessage", 100)

    assert fates(one, "SendMessage", 100) == fates(other, "SendMessage", 100)


def test_when_seeds_differ_then_so_do_the_plans() -> None:
    one, other = FaultPlan.random(7, rate=0.5), FaultPlan.random(8, rate=0.5)

    assert fates(one, "SendMessage", 100) != fates(other, "SendMessage", 100)


def test_when_a_rate_is_given_then_about_as_many_requests_fail_and_in_every_way() -> None:
    met = [fault for fault in fates(FaultPlan.random(7, rate=0.05), "SendMessage", 10_000) if fault]

    assert 400 < len(met) < 600
    assert set(met) == set(ALL_FAULTS)


def test_when_operations_are_named_then_the_others_are_spared() -> None:
    plan = FaultPlan.random(7, rate=1, kinds=[THROTTLE], operations={"SendMessage"})

    assert fates(plan, "SendMessage", 3) == [THROTTLE] * 3
    assert fates(plan, "ReceiveMessage", 3) == [None] * 3


def test_when_a_script_has_ended_then_nothing_more_goes_wrong() -> None:
    plan = FaultPlan.script({"SendMessage": [LOSE_RESPONSE, None, DROP_BEFORE]})

    assert fates(plan, "SendMessage", 5) == [LOSE_RESPONSE, None, DROP_BEFORE, None, None]
    assert fates(plan, "DeleteMessage", 1) == [None]


def test_when_every_request_is_to_be_late_then_none_is_on_time() -> None:
    assert fates(FaultPlan.every(delay(0.01)), "SendMessage", 2) == [delay(0.01)] * 2


def test_when_there_is_no_plan_then_there_is_no_fault() -> None:
    assert fates(NO_FAULTS, "SendMessage", 10) == [None] * 10

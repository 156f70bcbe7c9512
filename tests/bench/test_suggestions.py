"""Each rule speaks when the figures show it, and is silent when they do not."""

from typing import Any

import pytest

from pump.bench.report import Calls, EndReason, suggest

from .figures import measured, settings, spread

BUSY: dict[str, Any] = {"busy_s": 95.0}
"""Ten handlers over ten seconds."""


def about(found: dict[str, Any], as_set: dict[str, Any] | None = None) -> list[str]:
    """Which settings are spoken of, but for what is measured next."""
    suggestions = suggest(measured(**found), settings(**(as_set or {})))
    return [each.setting for each in suggestions if not each.setting.startswith("--")]


def test_when_all_is_well_then_nothing_is_to_be_changed() -> None:
    assert about({}) == []


def test_when_handlers_are_busy_and_the_processor_is_not_then_more_may_run_at_once() -> None:
    [found, *_] = suggest(measured(**BUSY, cpu_s=1.0), settings())

    assert (found.setting, found.advice) == ("concurrency", "try 80 instead of 10")
    assert "95%" in found.reason


def test_the_more_the_processor_has_to_do_the_less_is_added() -> None:
    [found, *_] = suggest(measured(**BUSY, cpu_s=4.0), settings())

    assert found.advice == "try 20 instead of 10"


def test_when_order_is_guaranteed_then_more_at_once_is_no_advice() -> None:
    [found, *_] = suggest(measured(busy_s=9.5), settings(ordering_guarantee=True))

    assert found.setting == "ordering_guarantee"
    assert "group" in found.advice


@pytest.mark.parametrize(
    ("groups", "setting", "advice"),
    [
        (4, "ordering_guarantee", "more groups than 4"),
        (10, "ordering_guarantee", "more groups than 10"),
        (50, "concurrency", "try 40 instead of 10"),
    ],
)
def test_when_groups_run_side_by_side_then_it_says_what_there_are_too_few_of(
    groups: int, setting: str, advice: str
) -> None:
    as_set = settings(ordering_guarantee=True, groups=groups)
    [found, *_] = suggest(measured(busy_s=9.5 * min(groups, 10)), as_set)

    assert (found.setting, advice in found.advice) == (setting, True)


def test_when_most_groups_had_nothing_to_run_then_more_of_them_are_no_advice() -> None:
    assert about({"busy_s": 10.0}, {"ordering_guarantee": True, "groups": 4}) == []


def test_where_no_other_process_can_have_the_queues_more_processes_need_another_gateway() -> None:
    [found, *_] = suggest(measured(cpu_s=9.5), settings(is_shared=False))

    assert "--processes" not in found.advice
    assert "local://" in found.advice


@pytest.mark.parametrize(("handled", "is_behind"), [(990, False), (500, True)])
def test_when_it_was_interrupted_then_only_what_had_waited_long_is_behind(
    handled: int, is_behind: bool
) -> None:
    named = about({"rate": 100.0, "handled": handled, "ended": EndReason.STOPPED})

    assert ("rate" in named) == is_behind


def test_when_one_core_is_used_up_then_only_more_processes_help() -> None:
    assert about({**BUSY, "cpu_s": 9.5}) == ["processes"]


def test_when_handlers_starve_behind_a_small_prefetch_then_it_should_grow() -> None:
    assert about({}, {"prefetch": 0, "in_hand": 10}) == ["prefetch"]


@pytest.mark.parametrize(
    "found", [{"rate": 100.0}, {**BUSY, "rate": 100.0}, {"cpu_s": 9.5, "rate": 100.0}]
)
def test_when_the_rate_was_kept_then_there_is_nothing_to_gain(found: dict[str, Any]) -> None:
    assert about(found, {"prefetch": 0}) == []


def test_when_the_rate_was_not_kept_then_it_says_so() -> None:
    [found, *_] = suggest(measured(rate=200.0), settings())

    assert found.setting == "rate"
    assert "100.0 messages a second were handled of the 200.0" in found.reason


def test_when_leases_were_lost_then_they_should_be_longer() -> None:
    [found, *_] = suggest(measured(lost=3, run=spread(40.0)), settings())

    assert (found.setting, found.advice) == ("lease", "use 120s")


def test_when_nobody_renews_a_lease_that_is_nearly_used_up_then_it_should_be_longer() -> None:
    [found, *_] = suggest(measured(run=spread(20.0)), settings(renew=False))

    assert (found.setting, found.advice) == ("lease", "use 60s, or renew=True")


def test_when_many_calls_only_extend_leases_then_they_should_be_longer() -> None:
    calls = Calls(receives=100, received=1_000, settles=100, settled=1_000, extends=100)

    assert about({"calls": calls, "run": spread(25.0)}) == ["lease"]


@pytest.mark.parametrize(("is_remote", "settings_named"), [(True, ["batching"]), (False, [])])
def test_when_less_is_in_hand_than_a_receive_brings_then_more_calls_are_needed(
    is_remote: bool, settings_named: list[str]
) -> None:
    calls = Calls(receives=500, received=1_000)

    assert about({"calls": calls}, {"in_hand": 2, "is_remote": is_remote}) == settings_named


@pytest.mark.parametrize(
    ("found", "as_set"),
    [
        ({"calls": Calls(receives=5, received=10)}, {"in_hand": 2}),
        ({"calls": Calls(receives=100, received=900)}, {"in_hand": 9}),
        ({"calls": Calls(receives=9, empty_receives=9)}, {"in_hand": 2}),
        ({"run": spread(1.0)}, {"renew": False}),
        ({}, {"prefetch": 10}),
        ({}, {"prefetch": 0, "ordering_guarantee": True}),
        ({"wall_s": 0.0}, {}),
    ],
)
def test_where_the_figures_do_not_show_it_nothing_is_said(
    found: dict[str, Any], as_set: dict[str, Any]
) -> None:
    assert about(found, as_set) in ([], ["ordering_guarantee"])


def test_when_nothing_was_handled_then_nothing_is_known() -> None:
    assert suggest(measured(handled=0, rejected=1_000), settings()) == ()


def test_a_backlogs_latency_is_not_taken_for_a_messages() -> None:
    [found] = suggest(measured(), settings())

    assert (found.setting, found.advice) == ("--rate", "measure latency with --rate 50")


def test_when_it_was_over_at_once_then_more_messages_are_asked_for() -> None:
    found = suggest(measured(wall_s=0.1, busy_s=0.1, cpu_s=0.02), settings())

    assert [each.advice for each in found if each.setting == "--messages"] == [
        "use --messages 50000"
    ]

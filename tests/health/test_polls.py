"""Receive health: silence is counted only while an answer is owed."""

from __future__ import annotations

from hypothesis import given, strategies as st

from pump.errors import ConnectionFailed
from pump.health.probes import shown
from pump.loop.receiving import ReceiveHealth

AWAY = ConnectionFailed("broker", "away")


def test_when_nothing_was_asked_then_nobody_is_silent() -> None:
    assert ReceiveHealth().silence_s(1_000.0) == 0.0


def test_when_a_receive_is_unanswered_then_the_silence_grows() -> None:
    polls = ReceiveHealth()
    polls.asked(10.0)

    assert polls.silence_s(25.0) == 15.0


def test_when_it_is_answered_and_no_other_is_open_then_nothing_is_owed() -> None:
    polls = ReceiveHealth()
    polls.asked(10.0)
    polls.answered(12.0)

    assert polls.silence_s(1_000.0) == 0.0


def test_when_one_of_two_is_answered_then_the_silence_starts_anew() -> None:
    polls = ReceiveHealth()
    polls.asked(10.0)
    polls.asked(11.0)
    polls.answered(30.0)

    assert polls.silence_s(35.0) == 5.0


def test_when_receives_fail_then_they_are_counted_and_the_silence_goes_on() -> None:
    polls = ReceiveHealth()
    for moment in (10.0, 11.0, 13.0):
        polls.asked(moment)
        polls.failed(AWAY)

    assert polls.failures_in_a_row == 3
    assert polls.silence_s(20.0) == 10.0
    assert shown(polls.last_error) == "ConnectionFailed: cannot reach broker: away"


def test_when_one_succeeds_then_the_failures_are_forgotten() -> None:
    polls = ReceiveHealth()
    polls.asked(10.0)
    polls.failed(AWAY)
    polls.asked(11.0)
    polls.answered(12.0)

    assert (polls.failures_in_a_row, polls.last_error) == (0, None)


def test_when_paused_then_nothing_is_owed_and_the_last_error_is_still_known() -> None:
    polls = ReceiveHealth()
    polls.asked(10.0)
    polls.failed(AWAY)
    polls.asked(11.0)
    polls.recalled()
    polls.paused()

    assert (polls.silence_s(100.0), polls.failures_in_a_row) == (0.0, 0)
    assert polls.last_error is AWAY


@given(steps=st.lists(st.sampled_from(["asked", "answered", "failed", "recalled"]), max_size=60))
def test_whatever_happens_then_as_many_are_open_as_were_asked_and_not_ended(
    steps: list[str],
) -> None:
    polls = ReceiveHealth()
    asked = ended = 0
    for now_s, step in enumerate(steps):
        if step == "asked":
            polls.asked(float(now_s))
            asked += 1
        elif ended < asked:
            ended += 1
            match step:
                case "answered":
                    polls.answered(float(now_s))
                case "failed":
                    polls.failed(AWAY)
                case _:
                    polls.recalled()

        assert polls.open_count == asked - ended
        assert 0.0 <= polls.silence_s(float(now_s)) <= now_s

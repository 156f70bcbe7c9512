"""When a query that reads what is there is done (R78)."""

from __future__ import annotations

from pump.spark.data.feed import Drain


def test_when_two_looks_find_nothing_then_it_is_done() -> None:
    """R78: one empty answer may be a broker's mood."""
    drain = Drain(100, 10)

    drain.looked(40, is_empty=True)
    assert not drain.is_done
    drain.looked(0, is_empty=True)
    assert drain.is_done


def test_when_a_message_comes_between_then_looks_are_counted_anew() -> None:
    """R78: only looks in a row count."""
    drain = Drain(100, 10)

    drain.looked(0, is_empty=True)
    drain.looked(1, is_empty=True)

    assert not drain.is_done


def test_when_the_depth_is_read_then_no_more_is_asked_for() -> None:
    """R78: a round asks for what was there, and at least for one receive's worth."""
    drain = Drain(100, 10)

    assert drain.most(60) == 60
    drain.looked(60, is_empty=False)
    assert drain.most(60) == 40
    assert Drain(0, 10).most(60) == 10


def test_when_the_estimate_was_low_then_another_round_reads_the_rest() -> None:
    """R78: SQS counts approximately, and what it missed was there as well."""
    drain = Drain(80, 10)
    drain.looked(80, is_empty=False)
    assert drain.is_round_over

    drain.next_round(20)

    assert not drain.is_done
    assert drain.most(1_000) == 20


def test_when_senders_are_as_fast_as_the_reader_then_it_is_done_all_the_same() -> None:
    """R78: a query that is to end ends."""
    drain = Drain(80, 10)
    drain.looked(80, is_empty=False)

    drain.next_round(75)

    assert drain.is_done


def test_when_nobody_tells_the_depth_then_it_reads_until_nothing_comes() -> None:
    """R78: a missing permission is no reason to read nothing."""
    drain = Drain(None, 10)

    drain.looked(10_000, is_empty=False)

    assert drain.most(500) == 500
    assert not drain.is_round_over

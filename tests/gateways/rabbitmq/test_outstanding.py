"""Acks in one word never cover a delivery that is not done."""

from __future__ import annotations

from hypothesis import given, strategies as st

from gateways.rabbitmq.settling import Acks, Outstanding


def with_tags(*tags: int) -> Outstanding:
    outstanding = Outstanding()
    for tag in tags:
        outstanding.add(tag)
    return outstanding


def test_when_all_that_came_first_is_done_then_one_word_says_so() -> None:
    assert with_tags(1, 2, 3, 4).settle([2, 1, 3], []) == Acks(3, ())


def test_when_the_first_is_not_done_then_the_others_are_acked_singly() -> None:
    assert with_tags(1, 2, 3).settle([2, 3], []) == Acks(None, (2, 3))


def test_when_the_first_is_handed_back_then_it_is_in_nobodys_way() -> None:
    assert with_tags(1, 2, 3).settle([2, 3], [1]) == Acks(3, ())


def test_when_a_tag_was_skipped_then_it_is_never_acked_along() -> None:
    """A delivery that the SDK told nobody of."""
    assert with_tags(1, 3, 4).settle([1, 3, 4], []) == Acks(1, (3, 4))


def test_when_a_skipped_tag_comes_after_all_then_it_counts_like_any_other() -> None:
    assert with_tags(1, 3, 2).settle([1, 2, 3], []) == Acks(3, ())


@given(st.data(), st.integers(1, 40))
def test_when_anything_is_settled_then_exactly_that_is_told(data: st.DataObject, last: int) -> None:
    """Laws 1 and 2: read as the broker reads it."""
    unsettled = set(range(1, last + 1))
    outstanding = with_tags(*sorted(unsettled))
    while unsettled:
        done = data.draw(st.sets(st.sampled_from(sorted(unsettled))))
        undone = data.draw(st.sets(st.sampled_from(sorted(unsettled)))) - done
        acks = outstanding.settle(sorted(done), sorted(undone))

        still = unsettled - undone
        told = {tag for tag in still if acks.up_to is not None and tag <= acks.up_to}
        assert told.isdisjoint(acks.singly)
        assert told | set(acks.singly) == done
        unsettled = still - done
        assert len(outstanding) == len(unsettled)
        if not done and not undone:
            break

"""Batches hold ten entries and 1 MiB; sends are cut accordingly, in order (R58)."""

from itertools import pairwise

from hypothesis import given, strategies as st

from gateways.sqs.producer import chunked
from gateways.sqs.wire import SendEntry


def entry(size: int) -> SendEntry:
    return SendEntry(body="x", attribute="{}", group=None, deduplication_id=None, size=size)


def sizes(chunks: object) -> list[list[int]]:
    assert isinstance(chunks, list)
    return [[each.size for each in chunk] for chunk in chunks]


entries = st.lists(st.integers(1, 60).map(entry), max_size=40)


@given(entries, st.integers(1, 10), st.integers(1, 100))
def test_when_entries_are_chunked_then_order_and_both_limits_hold(
    given_entries: list[SendEntry], max_count: int, max_bytes: int
) -> None:
    chunks = list(chunked(given_entries, max_count=max_count, max_bytes=max_bytes))

    assert [each for chunk in chunks for each in chunk] == given_entries
    for chunk in chunks:
        assert 1 <= len(chunk) <= max_count
        assert len(chunk) == 1 or sum(each.size for each in chunk) <= max_bytes


@given(entries, st.integers(1, 10), st.integers(1, 100))
def test_when_entries_are_chunked_then_no_chunk_had_room_for_the_next_entry(
    given_entries: list[SendEntry], max_count: int, max_bytes: int
) -> None:
    """As few requests as order allows: a request costs a hundred messages."""
    chunks = list(chunked(given_entries, max_count=max_count, max_bytes=max_bytes))

    for chunk, following in pairwise(chunks):
        size = sum(each.size for each in chunk) + following[0].size
        assert len(chunk) == max_count or size > max_bytes


def test_when_one_entry_is_too_large_then_it_stands_alone() -> None:
    chunks = list(chunked([entry(5), entry(200), entry(5)], max_bytes=100))

    assert sizes(chunks) == [[5], [200], [5]]


def test_when_limits_are_met_exactly_then_one_request_is_enough() -> None:
    one_mib = [entry(104_857)] * 9 + [entry(104_863)]

    assert sizes(list(chunked(one_mib))) == [[104_857] * 9 + [104_863]]
    assert [len(chunk) for chunk in chunked([entry(1)] * 11)] == [10, 1]


def test_when_there_is_nothing_to_send_then_there_is_no_chunk() -> None:
    assert list(chunked([])) == []

"""What a strict queue looks at after a claim (T7)."""

from __future__ import annotations

from gateways.s3.leases.codec import (
    BatchId,
    LeaseObject,
    MessageId,
    batch_key,
    encode_lease,
    lease_key,
)
from gateways.s3.leases.protocol import Gone, confirm_head
from gateways.s3.store.objects import Put
from tests.gateways.s3.leases.worlds import KEYS, a_bucket, a_lease, play
from tests.gateways.s3.model_store import ModelS3


def batches(*counts: int) -> ModelS3:
    s3 = a_bucket()
    for number, size in enumerate(counts, start=1):
        s3.apply(Put(batch_key(KEYS, BatchId(number, size)), b"batch"))
    return s3


def put_lease(s3: ModelS3, number: int, place: int, lease: LeaseObject | None) -> MessageId:
    message = MessageId(number, place)
    s3.apply(Put(lease_key(KEYS, message), b"" if lease is None else encode_lease(lease)))
    return message


def is_head(s3: ModelS3, mine: MessageId, count: int, now_s: float = 0.0) -> object:
    return play(confirm_head(KEYS, (BatchId(mine.number, count), mine), {}, lambda: now_s), s3)


def test_when_all_before_it_is_done_then_it_is_the_head() -> None:
    """T7."""
    s3 = batches(1, 2)
    put_lease(s3, 1, 0, None)
    put_lease(s3, 2, 0, None)
    mine = put_lease(s3, 2, 1, a_lease())

    assert is_head(s3, mine, 2) is True


def test_when_an_earlier_batch_has_come_late_then_it_is_not() -> None:
    """T7."""
    s3 = batches(1, 1)
    mine = put_lease(s3, 2, 0, a_lease())

    assert is_head(s3, mine, 1) is False


def test_when_an_earlier_message_of_its_batch_is_not_done_then_it_is_not() -> None:
    """T7."""
    s3 = batches(2)
    mine = put_lease(s3, 1, 1, a_lease())

    assert is_head(s3, mine, 2) is False


def test_when_a_later_one_is_in_flight_then_it_must_wait() -> None:
    """T7: one in flight."""
    s3 = batches(1, 1)
    mine = put_lease(s3, 1, 0, a_lease())
    put_lease(s3, 2, 0, a_lease("theirs"))

    assert is_head(s3, mine, 1) is False
    assert is_head(s3, mine, 1, now_s=100.0) is True


def test_when_a_later_one_was_handed_back_then_it_is_no_obstacle() -> None:
    """T7."""
    s3 = batches(1, 1)
    mine = put_lease(s3, 1, 0, a_lease())
    put_lease(s3, 2, 0, a_lease("", owner=""))

    assert is_head(s3, mine, 1) is True


def test_when_its_batch_is_gone_then_it_was_done() -> None:
    """T7, T8."""
    s3 = batches()
    mine = put_lease(s3, 1, 0, a_lease())

    assert is_head(s3, mine, 1) == Gone()

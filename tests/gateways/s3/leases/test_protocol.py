"""Every protocol ends right, whichever of its requests goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gateways.s3.leases.codec import (
    BatchContent,
    BatchedMessage,
    BatchId,
    LeaseObject,
    MessageId,
    batch_key,
    decode_lease,
    decode_tail,
    encode_batch,
    lease_key,
    lease_keys,
)
from gateways.s3.leases.protocol import (
    MAX_TRIES,
    KnownTail,
    LeaseHandle,
    Lost,
    NumberRange,
    Undecided,
    ack,
    claim_fresh,
    clean_up,
    confirm,
    hand_back,
    put_batch,
    read_batch,
    reclaim,
    renew,
    take_numbers,
)
from gateways.s3.store.objects import Missing, Put, Remove, WrittenObject
from pump.testing.builders import a_message
from tests.gateways.s3.leases.worlds import (
    BUSY,
    FAULTS,
    KEYS,
    LOST,
    REPEATED,
    UNANSWERED,
    a_bucket,
    a_lease,
    leave,
    new_id,
    play,
)
from tests.gateways.s3.model_store import ModelS3

KEY = lease_key(KEYS, MessageId(1, 0))
BATCH = BatchId(1, 2)


def held(s3: ModelS3, lease: LeaseObject | None = None) -> LeaseHandle:
    lease = lease or a_lease()
    verdict = play(claim_fresh(KEY, lease), s3)
    assert isinstance(verdict, WrittenObject)
    return LeaseHandle(key=KEY, etag=verdict.etag, lease=lease)


def stored(s3: ModelS3) -> LeaseObject:
    return decode_lease(s3.objects[KEY].body)


each_fault = pytest.mark.parametrize("fault", FAULTS)
each_place = pytest.mark.parametrize("place", range(3))


@each_fault
@each_place
def test_when_a_request_of_a_claim_goes_wrong_then_it_is_won_all_the_same(
    fault: str, place: int
) -> None:
    """R47, T8: and what is returned is the version that is there."""
    s3, lease = a_bucket(), a_lease()

    verdict = play(claim_fresh(KEY, lease), s3, [*[UNANSWERED] * place, fault])

    assert verdict == WrittenObject(s3.objects[KEY].etag)
    assert stored(s3) == lease


@each_fault
def test_when_another_has_claimed_then_a_claim_is_lost_whatever_goes_wrong(fault: str) -> None:
    """R12, R47."""
    s3, theirs = a_bucket(), a_lease("theirs")
    held(s3, theirs)

    verdict = play(claim_fresh(KEY, a_lease()), s3, [fault])

    assert isinstance(verdict, Lost)
    assert stored(s3) == theirs


@each_fault
@each_place
def test_when_two_reclaim_one_lease_then_one_wins_whatever_goes_wrong(
    fault: str, place: int
) -> None:
    """R48, T8."""
    s3 = a_bucket()
    over = held(s3)
    mine, theirs = a_lease("b", fence=2), a_lease("c", fence=2)

    first = play(reclaim(KEY, over.etag, mine), s3, [*[None] * place, fault])
    second = play(reclaim(KEY, over.etag, theirs), s3, [*[None] * place, fault])

    assert isinstance(first, WrittenObject)
    assert isinstance(second, Lost)
    assert stored(s3) == mine


@pytest.mark.parametrize("operation", [renew, hand_back])
@each_fault
@each_place
def test_when_a_request_of_the_owner_goes_wrong_then_its_write_stands(
    operation: Callable[[LeaseHandle, LeaseObject], Any], fault: str, place: int
) -> None:
    """R15, R48, T8."""
    s3 = a_bucket()
    handle = held(s3)
    later = a_lease(expires_s=200.0)

    verdict = play(operation(handle, later), s3, [*[LOST] * place, fault])

    assert verdict == WrittenObject(s3.objects[KEY].etag)
    assert stored(s3) == later


@each_fault
@each_place
def test_when_a_request_of_an_ack_goes_wrong_then_the_message_is_done(
    fault: str, place: int
) -> None:
    """R5, T8: and the verdict is not that it was lost without a look."""
    s3 = a_bucket()
    handle = held(s3)

    verdict = play(ack(handle), s3, [*[LOST] * place, fault])

    assert s3.objects[KEY].body == b""
    assert isinstance(verdict, WrittenObject) or (isinstance(verdict, Lost) and verdict.found)


@pytest.mark.parametrize("act", ["renew", "hand back", "ack"])
def test_when_a_lease_was_taken_over_then_its_old_owner_can_do_nothing(act: str) -> None:
    """R9, R14, T8: a zombie neither acks, renews nor requeues, and one request tells it so."""
    s3 = a_bucket()
    zombie = held(s3)
    theirs = a_lease("theirs", fence=2)
    play(reclaim(KEY, zombie.etag, theirs), s3)
    before = s3.counts.total()

    verdict = play(_act(act, zombie), s3)

    assert verdict == Lost()
    assert stored(s3) == theirs
    assert s3.counts.total() == before + 1


@pytest.mark.parametrize("act", ["renew", "hand back", "ack"])
def test_when_a_renewal_got_no_answer_then_the_owner_goes_on_from_what_it_wrote(act: str) -> None:
    """T8: a 412 after a lost answer may be one's own write."""
    s3 = a_bucket()
    handle = held(s3)
    play(renew(handle, a_lease(expires_s=150.0)), s3)
    doubtful = LeaseHandle(key=KEY, etag=handle.etag, lease=handle.lease, is_doubtful=True)

    verdict = play(_act(act, doubtful), s3)

    assert isinstance(verdict, WrittenObject)
    assert verdict.etag == s3.objects[KEY].etag


def test_when_a_late_copy_of_a_renewal_arrives_then_it_finds_another_version() -> None:
    """T8: equal bodies would have equal ETags; a nonce makes each version its own."""
    s3 = a_bucket()
    handle = held(s3)
    first, second = a_lease(expires_s=150.0), a_lease(expires_s=150.0)
    late = next(renew(handle, first))
    renewed = play(renew(handle, first), s3)
    assert isinstance(renewed, WrittenObject)
    play(renew(LeaseHandle(key=KEY, etag=renewed.etag, lease=first), second), s3)

    s3.apply(late)

    assert stored(s3) == second


def test_when_the_store_is_busy_for_good_then_nothing_is_decided() -> None:
    """T8: 409 is not 412."""
    s3 = a_bucket()

    verdict = play(claim_fresh(KEY, a_lease()), s3, [BUSY] * 50)

    assert isinstance(verdict, Undecided)
    assert s3.objects == {}


def test_when_nothing_answers_then_it_ends_undecided_after_a_few_requests() -> None:
    """R51."""
    s3 = a_bucket()

    verdict = play(claim_fresh(KEY, a_lease()), s3, [UNANSWERED, *[LOST] * 50])

    assert isinstance(verdict, Undecided)
    assert s3.counts.total() <= 1 + MAX_TRIES


@each_fault
@each_place
def test_when_a_request_for_numbers_goes_wrong_then_no_number_is_given_twice(
    fault: str, place: int
) -> None:
    """R36, T8: numbers that nobody uses do no harm."""
    s3 = a_bucket()
    first = play(take_numbers(KEYS, 3, None, new_id), s3, [*[None] * place, fault])
    second = play(take_numbers(KEYS, 2, None, new_id), s3, [*[None] * place, fault])
    assert isinstance(first, NumberRange)
    assert isinstance(second, NumberRange)

    stale = play(take_numbers(KEYS, 1, first.tail, new_id), s3, [*[None] * place, fault])

    assert isinstance(stale, NumberRange)
    assert first.first + 3 <= second.first
    assert second.first + 2 <= stale.first
    assert decode_tail(s3.objects[KEYS.tail].body).next > stale.first


def test_when_the_tail_was_removed_then_numbers_go_on_behind_the_batches() -> None:
    """R36: somebody's clean-up must not make two batches of one number."""
    s3 = a_bucket()
    s3.apply(Put(batch_key(KEYS, BatchId(41, 3)), b"batch"))

    numbers = play(take_numbers(KEYS, 1, None, new_id), s3)

    assert isinstance(numbers, NumberRange)
    assert numbers.first == 42


def test_when_the_tail_is_known_then_a_number_costs_one_request() -> None:
    """R50."""
    s3 = a_bucket()
    first = play(take_numbers(KEYS, 1, None, new_id), s3)
    assert isinstance(first, NumberRange)
    before = s3.counts.total()

    play(take_numbers(KEYS, 1, first.tail, new_id), s3)

    assert s3.counts.total() == before + 1
    assert first.tail == KnownTail(2, first.tail.etag)


@each_fault
@each_place
def test_when_a_request_of_a_batch_goes_wrong_then_it_is_there_once(fault: str, place: int) -> None:
    """R1, T8."""
    s3, key = a_bucket(), batch_key(KEYS, BATCH)
    body = encode_batch(
        BatchContent([BatchedMessage.of(a_message("A")), BatchedMessage.of(a_message("B"))], 0.0)
    )

    is_put = play(put_batch(key, body, KEY), s3, [*[UNANSWERED] * place, fault])

    assert is_put is True
    assert s3.objects[key].body == body


def test_when_another_batch_has_the_number_then_the_sender_is_told() -> None:
    """R1: nothing is overwritten."""
    s3, key = a_bucket(), batch_key(KEYS, BATCH)
    s3.apply(Put(key, b"theirs"))

    is_put = play(put_batch(key, b"ours", KEY), s3)

    assert is_put is False
    assert s3.objects[key].body == b"theirs"


def test_when_a_batch_is_done_before_its_answer_comes_then_it_was_sent() -> None:
    """R1: taken, handled and removed while the sender still asks."""
    s3, key = a_bucket(), batch_key(KEYS, BATCH)
    steps = put_batch(key, b"body", KEY)
    put = next(steps)
    s3.apply(put)
    get = steps.send(s3.apply(put))
    s3.apply(Remove([key]))

    with pytest.raises(StopIteration) as end:
        steps.send(s3.apply(get))

    assert end.value.value is True


def test_when_a_batch_is_gone_then_a_claim_of_it_is_not_confirmed() -> None:
    """R5, T8: its leases were removed, so that a new one can be made."""
    s3, key = a_bucket(), batch_key(KEYS, BATCH)
    s3.apply(Put(key, b"body"))
    was_there = play(confirm(key), s3, [LOST, UNANSWERED])
    play(clean_up([key], lease_keys(KEYS, BATCH)), s3)
    claimed = play(claim_fresh(KEY, a_lease()), s3)

    assert was_there is True
    assert isinstance(claimed, WrittenObject)
    assert play(confirm(key), s3) is False
    assert play(read_batch(key), s3) == Missing()


@pytest.mark.parametrize("after", range(3))
def test_when_cleaning_up_is_left_half_done_then_no_lease_goes_before_its_batch(
    after: int,
) -> None:
    """R5, T8: or its messages would look as if they had never been claimed."""
    s3, key = a_bucket(), batch_key(KEYS, BATCH)
    s3.apply(Put(key, b"body"))
    leases = lease_keys(KEYS, BATCH)
    for lease in leases:
        s3.apply(Put(lease, b""))

    leave(clean_up([key], leases), s3, after)

    assert (key not in s3.objects) or all(lease in s3.objects for lease in leases)
    assert play(clean_up([key], leases), s3) is True
    assert s3.objects == {}


def test_when_a_removal_gets_no_answer_then_leases_stay() -> None:
    """T8."""
    s3, key = a_bucket(), batch_key(KEYS, BATCH)
    s3.apply(Put(KEY, b""))

    is_clean = play(clean_up([key], [KEY]), s3, [LOST])

    assert is_clean is False
    assert KEY in s3.objects


def _act(act: str, handle: LeaseHandle) -> Any:
    if act == "ack":
        return ack(handle)
    operation = renew if act == "renew" else hand_back
    return operation(handle, a_lease(expires_s=300.0))


def test_when_repeated_then_a_fault_is_a_412_that_may_be_ours() -> None:
    """T8: the faults of these tests are those of the store."""
    s3 = a_bucket()

    verdict = play(claim_fresh(KEY, a_lease()), s3, [REPEATED])

    assert isinstance(verdict, WrittenObject)
    assert s3.counts["get"] == 1

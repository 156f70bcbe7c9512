"""Replicas of a log agree, whoever applied it, from wherever they started."""

from __future__ import annotations

import attrs
import pytest

from gateways._engine.record import EngineSettings
from gateways.s3.log import codec
from gateways.s3.log.entries import (
    CommitEntry,
    Configure,
    Lot,
    PurgeOperation,
    SendOperation,
    SettleOperation,
    Sweep,
    Take,
    hold,
)
from gateways.s3.log.follower import restore, take_snapshot
from gateways.s3.log.state import (
    MAX_WRITERS,
    MOVE_S,
    PurgeResult,
    Refusals,
    Replica,
    SendResult,
    Takings,
    configure,
)
from pump.errors import StorageFailed

from .logs import RandomLog

SETTINGS = EngineSettings(name="q")


def through_the_codec(entry: CommitEntry) -> CommitEntry:
    return codec.unpack_entry(codec.pack_entry(entry), "head")


def from_a_snapshot(replica: Replica) -> Replica:
    body = codec.pack_snapshot(take_snapshot(replica))
    return restore(codec.unpack_snapshot(body, "state"), "q")


@pytest.mark.parametrize("seed", range(40))
def test_when_random_logs_are_replayed_then_all_replicas_agree_on_everything(seed: int) -> None:
    """T8: from the first entry, from one snapshot, and from a snapshot before each entry."""
    log = RandomLog(seed)
    first, second = Replica(SETTINGS), Replica(attrs.evolve(SETTINGS, is_lifo=True))
    late = restless = first

    for number in range(70):
        entry = log.next(first)
        if number in (1, 25, 50):
            late = from_a_snapshot(first)
        if number:
            restless = from_a_snapshot(restless)
        applied = first.apply(entry)
        log.learn(applied)

        for other in {second, late, restless} - {first}:
            assert other.apply(through_the_codec(entry)) == applied
            assert other.next_due_s() == first.next_due_s()
            if number % 7 == 0:
                assert take_snapshot(other) == take_snapshot(first)
                assert looks(other) == looks(first)


def looks(replica: Replica) -> object:
    """What is seen from outside, a little later."""
    at_s = replica.at_s + 2
    seen = [(stub.segment, stub.place) for stub in replica.peek(at_s, 9)]
    return seen, replica.stats(at_s)


@pytest.mark.parametrize("seed", range(15))
def test_when_random_logs_are_replayed_then_segments_live_as_long_as_their_messages(
    seed: int,
) -> None:
    """What is removed has no message left, and what has none is removed."""
    log = RandomLog(seed)
    replica = Replica(SETTINGS)

    for _ in range(100):
        before = dict(replica.segments)
        applied = replica.apply(log.next(replica))
        log.learn(applied)

        named = {record.message.segment for record in replica.queue.records.values()}  # type: ignore[attr-defined]
        assert set(replica.segments) == named
        sent = {op.segment for op in applied.entry.ops if isinstance(op, SendOperation)}
        assert set(applied.emptied) == (set(before) | sent) - named


def an_entry(
    replica: Replica, *ops: object, at_s: float = 0.0, margin_s: float = 0.0
) -> CommitEntry:
    return CommitEntry(replica.number + 1, "ann", replica.number + 1, at_s, margin_s, ops)  # type: ignore[arg-type]


def test_when_a_writer_is_unsure_of_the_time_then_a_lease_is_granted_from_the_latest() -> None:
    """R12, T8: and judged by the earliest, so that nobody's lease is cut short."""
    replica = Replica(SETTINGS)
    replica.apply(an_entry(replica, SendOperation("s", 0.0, (Lot(1),)), at_s=100.0))
    replica.apply(an_entry(replica, Take(1, 10.0), at_s=101.0, margin_s=2.0))

    early = replica.apply(an_entry(replica, Take(1, 10.0), at_s=112.9, margin_s=2.0))
    in_time = replica.apply(an_entry(replica, Take(1, 10.0), at_s=113.0, margin_s=2.0))

    assert early.results == (Takings(()),)
    [result] = in_time.results
    assert isinstance(result, Takings)
    assert [(each.attempt, each.expires_s) for each in result.taken] == [(2, 125.0)]


def test_when_a_writer_is_behind_then_time_does_not_go_back() -> None:
    """T8."""
    replica = Replica(SETTINGS)
    replica.apply(an_entry(replica, at_s=100.0))

    replica.apply(an_entry(replica, at_s=50.0))

    assert replica.at_s == 100.0


def test_when_a_receipt_was_settled_then_it_is_refused_in_the_same_entry_too() -> None:
    """R14: law 1."""
    replica = Replica(SETTINGS)
    replica.apply(an_entry(replica, SendOperation("s", 0.0, (Lot(1),))))
    [takings] = replica.apply(an_entry(replica, Take(1, 10.0))).results
    assert isinstance(takings, Takings)
    held = hold([takings.taken[0].receipt])

    applied = replica.apply(an_entry(replica, SettleOperation(held), SettleOperation(held)))

    assert applied.results == (Refusals(()), Refusals((0,)))
    assert applied.emptied == ("s",)


def test_when_a_sweep_may_have_removed_a_segment_then_its_send_is_refused() -> None:
    """Never a message without its body."""
    replica = Replica(SETTINGS)
    replica.apply(an_entry(replica, Sweep(500.0)))

    applied = replica.apply(
        an_entry(
            replica, SendOperation("old", 499.0, (Lot(1),)), SendOperation("new", 500.0, (Lot(1),))
        )
    )

    assert applied.results == (SendResult(is_accepted=False), SendResult(is_accepted=True))
    assert replica.segments == {"new": 1}


def test_when_a_message_had_its_last_delivery_then_one_writer_looks_after_it_at_a_time() -> None:
    """R20, T5."""
    settings = attrs.evolve(SETTINGS, max_receive_count=1, dead_letter_queue="dead")
    replica = Replica(SETTINGS)
    replica.apply(an_entry(replica, configure(settings), SendOperation("s", 0.0, (Lot(1),))))
    replica.apply(an_entry(replica, Take(1, 10.0), at_s=1.0))

    applied = replica.apply(an_entry(replica, at_s=11.0))

    assert applied.dead == (1,)
    assert replica.dead[1].writer == "ann"
    assert replica.dead[1].until_s == 11.0 + MOVE_S
    assert from_a_snapshot(replica).stats(11.0).in_flight == 1


def test_when_the_dead_letter_queue_is_given_up_then_the_dead_are_delivered_again() -> None:
    """R20, R22: never out of reach for good."""
    settings = attrs.evolve(SETTINGS, max_receive_count=1, dead_letter_queue="dead")
    replica = Replica(SETTINGS)
    replica.apply(an_entry(replica, configure(settings), SendOperation("s", 0.0, (Lot(1),))))
    replica.apply(an_entry(replica, Take(1, 10.0), at_s=1.0))
    replica.apply(an_entry(replica, at_s=11.0))

    applied = replica.apply(
        an_entry(replica, Configure(False, False, None, None, 300.0), Take(1, 1.0))
    )

    takings = applied.results[1]
    assert isinstance(takings, Takings)
    assert [each.attempt for each in takings.taken] == [2]
    assert replica.dead == {}


def test_when_dead_letters_are_given_up_as_a_last_lease_ends_then_it_is_delivered_again() -> None:
    """R20, R22: nobody ran when the lease ended; whoever starts has other settings, says so in its
    first entry, and finds the lease over in the same.
    """
    settings = attrs.evolve(SETTINGS, max_receive_count=1, dead_letter_queue="dead")
    replica = Replica(SETTINGS)
    replica.apply(an_entry(replica, configure(settings), SendOperation("s", 0.0, (Lot(1),))))
    replica.apply(an_entry(replica, Take(1, 10.0), at_s=1.0))

    given_up = Configure(False, False, None, None, 300.0)
    applied = replica.apply(an_entry(replica, given_up, Take(1, 1.0), at_s=11.0))

    takings = applied.results[1]
    assert isinstance(takings, Takings)
    assert [each.attempt for each in takings.taken] == [2]
    assert applied.dead == ()
    assert replica.dead == {}


def test_when_many_writers_came_and_went_then_the_last_ones_are_known() -> None:
    """A replica does not grow with the number of processes there ever were."""
    replica = Replica(SETTINGS)
    for number in range(1, MAX_WRITERS + 3):
        replica.apply(CommitEntry(number, f"w{number}", 1, 0.0, 0.0, ()))

    assert len(replica.writers) == MAX_WRITERS
    assert "w2" not in replica.writers
    assert list(replica.writers)[-1] == f"w{MAX_WRITERS + 2}"


def test_when_purged_then_everything_is_gone_and_counted() -> None:
    """R5."""
    replica = Replica(SETTINGS)
    log = RandomLog(3)
    for _ in range(50):
        log.learn(replica.apply(log.next(replica)))
    count = len(replica.queue.records)

    applied = replica.apply(an_entry(replica, PurgeOperation()))

    assert applied.results == (PurgeResult(count),)
    assert count > 0
    assert replica.segments == {}


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"PL\x02\x01abc", b"PL\x01\x01abc", b"PL\x01\x00\xc1", b"PL\x01\x00\x80"]
)
def test_when_an_object_cannot_be_read_then_the_error_names_it_and_what_to_do(body: bytes) -> None:
    """Another release's, or damaged."""
    with pytest.raises(StorageFailed) as caught:
        codec.unpack_head(body, "queues/q/log/head")

    assert "queues/q/log/head" in str(caught.value)
    assert "nothing was changed" in str(caught.value)


@pytest.mark.parametrize("text", ["plain", "žluť", "\ud800", "\ud800é", None])
def test_when_a_group_is_any_text_then_it_can_be_packed_and_stays_itself(text: str | None) -> None:
    """R38."""
    lot = Lot(1, 0.0, (codec.as_key(text),))

    entry = CommitEntry(1, "ann", 1, 0.0, 0.0, (SendOperation("s", 0.0, (lot,)),))

    assert through_the_codec(entry) == entry
    others = {codec.as_key(other) for other in ("plain", "žluť", "\ud800", "\ud800é", None)}
    assert len(others) == 5

"""A commit happens once, wholly, or not at all, whatever becomes of any of its requests."""

from __future__ import annotations

import pytest

from gateways.s3.log import codec, commit
from gateways.s3.log.commit import Committed, sweep
from gateways.s3.log.entries import Lot, SendOperation, SettleOperation, Take, hold
from gateways.s3.log.follower import MAX_FAULTS, clean, refresh, take_snapshot
from gateways.s3.log.state import Refusals, SendResult, Takings
from gateways.s3.store.objects import ConditionFailed, Get, Put, Steps, Unknown, WrittenObject
from pump.errors import ConnectionFailed, StorageFailed

from .steps import KEYS, Bench, Died, Fault, Writer


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that rolls at every other entry and makes a snapshot at every sixth or so."""
    monkeypatch.setattr(commit, "ROLL_BYTES", 60)
    monkeypatch.setattr(commit, "SNAPSHOT_BYTES", 200)


def a_send(name: str) -> SendOperation:
    return SendOperation(name, 0.0, (Lot(1),))


def segments_of(writer: Writer) -> list[str]:
    """Of all messages in the queue, in their order, those sent twice twice."""
    records = writer.follower.replica.queue.records.values()
    return [record.message.segment for record in records]  # type: ignore[attr-defined]


def a_stranger(bench: Bench) -> Writer:
    """Another process, which starts from nothing and follows the log."""
    stranger = Writer(bench, "stranger")
    stranger.run(refresh(stranger.follower))
    return stranger


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("fault", list(Fault))
def test_when_any_request_goes_wrong_then_each_send_is_in_the_log_once(fault: Fault) -> None:
    """T8: two writers in turn, a fault at each request there is, and the log goes on."""
    at = 0
    while True:
        bench = Bench(fault=fault, at=at)
        names = _send_in_turns(bench)
        if bench.performed <= at:
            break

        stranger = a_stranger(bench)
        found = segments_of(stranger)
        # What died may or may not be there; what was confirmed is, in its order, once.
        assert [each for each in found if each in names] == names
        assert len(found) == len(set(found))
        assert len(found) <= len(names) + 1
        at += 1
    assert at > 40


def _send_in_turns(bench: Bench) -> list[str]:
    """Send by two writers, each beginning anew after its death; returns what was confirmed."""
    writers = {"ann": Writer(bench, "ann"), "bob": Writer(bench, "bob")}
    confirmed = []
    for number in range(16):
        name = ("ann", "bob")[number // 2 % 2]
        try:
            committed = writers[name].commit(a_send(f"s{number}"))
        except Died:
            writers[name] = Writer(bench, f"{name} again")
            continue
        assert committed.results == (SendResult(is_accepted=True),)
        confirmed.append(f"s{number}")
    return confirmed


@pytest.mark.parametrize("fault", [Fault.UNANSWERED, Fault.REPEATED, Fault.LATE])
def test_when_the_reply_to_the_commit_gets_lost_then_its_results_are_found(fault: Fault) -> None:
    """R12, T8: the lease that was granted is the caller's."""
    bench = Bench()
    ann = Writer(bench, "ann")
    ann.commit(a_send("s"))
    bench.fault, bench.at = fault, bench.performed

    committed = ann.commit(Take(1, 30.0))

    assert committed.results is not None
    [takings] = committed.results
    assert isinstance(takings, Takings)
    assert len(takings.taken) == 1
    assert ann.commit(SettleOperation(hold([takings.taken[0].receipt]))).results == (Refusals(()),)


def test_when_it_stays_unknown_then_it_raises_and_says_nothing_is_known() -> None:
    """T8: a send is never reported as sent without an answer."""
    bench = Bench()
    ann = Writer(bench, "ann")
    ann.commit(a_send("first"))
    ann.drafts += 1
    steps = commit.commit(
        ann.follower,
        commit.Draft(ann.drafts, (a_send("second"),)),
        time=ann.time,
        new_nonce=lambda: "n",
    )

    with pytest.raises(ConnectionFailed):
        _lose_writes(bench, steps, max_count=3 * MAX_FAULTS)

    assert segments_of(a_stranger(bench)) == ["first"]


def _lose_writes(bench: Bench, steps: Steps[Committed], *, max_count: int) -> None:
    request = next(steps)
    for _ in range(max_count):
        lost = Unknown(ConnectionFailed("the bucket", "timeout"))
        request = steps.send(bench.s3.apply(request) if isinstance(request, Get) else lost)


def test_when_a_commit_that_was_given_up_comes_through_later_then_the_next_one_finds_it() -> None:
    """T8: it may have happened; and the log goes on behind it."""
    bench = Bench()
    ann = Writer(bench, "ann")
    ann.commit(a_send("first"))
    ann.drafts += 1
    draft = commit.Draft(ann.drafts, (a_send("ghost"),))
    steps = commit.commit(ann.follower, draft, time=ann.time, new_nonce=lambda: "ghost")
    ghost = next(steps)
    steps.close()
    bench.s3.apply(ghost)

    ann.commit(a_send("third"))

    assert segments_of(ann) == ["first", "ghost", "third"]
    assert segments_of(a_stranger(bench)) == ["first", "ghost", "third"]


def test_when_another_head_stands_then_a_commit_that_was_given_up_can_never_come_through() -> None:
    """T8: ETags never return, as every head has a nonce."""
    bench = Bench()
    ann, bob = Writer(bench, "ann"), Writer(bench, "bob")
    ann.commit(a_send("first"))
    draft = commit.Draft(2, (a_send("ghost"),))
    steps = commit.commit(ann.follower, draft, time=ann.time, new_nonce=lambda: "ghost")
    ghost = next(steps)
    steps.close()
    bob.commit(a_send("second"))

    assert bench.s3.apply(ghost) == ConditionFailed()
    assert segments_of(a_stranger(bench)) == ["first", "second"]


def test_when_others_were_first_then_it_is_committed_behind_them() -> None:
    """R13: each writer loses once; nothing is lost."""
    bench = Bench()
    writers = [Writer(bench, name) for name in ("ann", "bob", "cy")]
    for writer in writers:
        writer.run(refresh(writer.follower))

    for writer in writers:
        writer.commit(a_send(writer.name))

    assert segments_of(a_stranger(bench)) == ["ann", "bob", "cy"]


@pytest.mark.usefixtures("hurried")
def test_when_a_process_was_paused_then_it_catches_up_and_goes_on() -> None:
    """R48, T8: over history and snapshots that came and went, and with a receipt that is void."""
    bench = Bench()
    ann, bob = Writer(bench, "ann"), Writer(bench, "bob")
    results = ann.commit(a_send("old"), Take(1, 5.0)).results
    assert results is not None
    takings = results[1]
    assert isinstance(takings, Takings)
    for number in range(60):
        bench.now_s += 60
        bob.commit(a_send(f"s{number}"))
        bob.run(clean(bob.follower))

    refused = ann.commit(SettleOperation(hold([takings.taken[0].receipt])))

    assert refused.results == (Refusals((0,)),)
    assert len(segments_of(ann)) == 61
    bob.run(refresh(bob.follower))
    assert take_snapshot(ann.follower.replica) == take_snapshot(bob.follower.replica)


@pytest.mark.usefixtures("hurried")
def test_when_a_snapshot_stands_before_the_results_then_it_is_known_that_it_happened() -> None:
    """T8: the process slept between its write and the reply."""
    bench = Bench()
    ann, bob = Writer(bench, "ann"), Writer(bench, "bob")
    ann.commit(a_send("first"))
    draft = commit.Draft(2, (a_send("slept"),))
    steps = commit.commit(ann.follower, draft, time=ann.time, new_nonce=lambda: "n")
    request = next(steps)
    while not (isinstance(request, Put) and request.key == KEYS.head):
        request = steps.send(bench.s3.apply(request))
    assert isinstance(bench.s3.apply(request), WrittenObject)
    for number in range(60):
        bob.commit(a_send(f"s{number}"))
        bob.run(clean(bob.follower))

    outcome = _go_on(bench, steps, Unknown(ConnectionFailed("the bucket", "timeout")))

    assert outcome == Committed(None)
    assert segments_of(ann).count("slept") == 1


def _go_on(bench: Bench, steps: object, reply: object) -> object:
    """Answer a request that was made before, and perform the rest."""
    try:
        while True:
            reply = bench.s3.apply(steps.send(reply))  # type: ignore[attr-defined]
    except StopIteration as end:
        return end.value


@pytest.mark.usefixtures("hurried")
def test_when_history_is_removed_while_it_is_read_then_the_next_head_is_followed() -> None:
    """T8."""
    bench = Bench()
    bob, ann = Writer(bench, "bob"), Writer(bench, "ann")
    for number in range(5):
        bob.commit(a_send(f"s{number}"))
    steps = refresh(ann.follower)
    request = steps.send(bench.s3.apply(next(steps)))
    assert isinstance(request, Get)
    assert request.key.startswith(KEYS.history)
    for number in range(5, 40):
        bob.commit(a_send(f"s{number}"))
        bob.run(clean(bob.follower))

    _go_on(bench, steps, bench.s3.apply(request))

    assert segments_of(ann) == [f"s{number}" for number in range(40)]


@pytest.mark.usefixtures("hurried")
def test_when_somebody_removed_the_history_then_the_error_names_it() -> None:
    """A lifecycle rule, say; nothing is made up."""
    bench = Bench()
    bob = Writer(bench, "bob")
    for number in range(5):
        bob.commit(a_send(f"s{number}"))
    for key in [key for key in bench.s3.objects if key.startswith(KEYS.history)]:
        del bench.s3.objects[key]

    with pytest.raises(StorageFailed) as caught:
        a_stranger(bench)

    assert KEYS.history in str(caught.value)


def test_when_the_queue_was_removed_and_made_again_then_the_replica_starts_anew() -> None:
    """Also when the new log is longer than the old one."""
    bench = Bench()
    ann, bob = Writer(bench, "ann"), Writer(bench, "bob")
    ann.commit(a_send("old"))
    bench.s3.objects.clear()
    for name in ("x", "y", "z"):
        bob.commit(a_send(name))

    ann.commit(a_send("new"))

    assert segments_of(ann) == ["x", "y", "z", "new"]


@pytest.mark.usefixtures("hurried")
def test_when_a_writer_died_after_its_segment_then_a_sweep_removes_it_and_nothing_else() -> None:
    """Nor may the segment be named afterwards."""
    bench = Bench()
    ann = Writer(bench, "ann")
    for name in ("kept", "litter"):
        bench.s3.apply(Put(f"{KEYS.segments}{name}", codec.pack_segment([name.encode()])))
    born_s = bench.now_s - 1
    for number in range(9):
        ann.commit(SendOperation("kept", born_s, (Lot(1),)) if not number else a_send(f"s{number}"))
    bench.s3.apply(Put(f"{KEYS.history}x/litter", b""))
    bench.now_s += 5000
    ann.run(refresh(ann.follower))
    ann.drafts += 1

    count = ann.run(
        sweep(
            ann.follower,
            ann.time.earliest_s() - 3600,
            draft_count=lambda: ann.drafts,
            time=ann.time,
            new_nonce=lambda: "sweeping",
        )
    )
    ann.run(clean(ann.follower))

    assert count >= 2
    assert f"{KEYS.segments}kept" in bench.s3.objects
    assert f"{KEYS.segments}litter" not in bench.s3.objects
    assert f"{KEYS.history}x/litter" not in bench.s3.objects
    late = ann.commit(SendOperation("litter", born_s, (Lot(1),)))
    assert late.results == (SendResult(is_accepted=False),)
    assert len(segments_of(a_stranger(bench))) == 9


def test_when_there_is_nothing_to_sweep_then_nothing_is_committed() -> None:
    """R50: an idle queue costs nothing."""
    bench = Bench()
    ann = Writer(bench, "ann")
    ann.commit(a_send("s"))
    number = ann.follower.replica.number

    count = ann.run(
        sweep(ann.follower, 10.0, draft_count=lambda: 9, time=ann.time, new_nonce=lambda: "n")
    )

    assert (count, ann.follower.replica.number) == (0, number)

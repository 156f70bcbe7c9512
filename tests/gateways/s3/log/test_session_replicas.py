"""Replicas of a log agree on sessions too, and a lock is granted by the latest time."""

from __future__ import annotations

from random import Random

import pytest

from gateways._engine.record import EngineSettings
from gateways.s3.log.entries import (
    Accept,
    Lot,
    Op,
    PurgeOperation,
    Release,
    Renew,
    SendOperation,
    SettleOperation,
    Take,
    TakeInSession,
    hold,
)
from gateways.s3.log.follower import take_snapshot
from gateways.s3.log.state import (
    Applied,
    NotGranted,
    Refusals,
    Released,
    Replica,
    SessionGrant,
    Takings,
)

from .logs import RandomLog
from .test_replicas import SETTINGS, an_entry, from_a_snapshot, looks, through_the_codec


class SessionLog(RandomLog):
    """Of which half is about sessions."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._dice = Random(seed)
        self._tokens = ["void"]

    def learn(self, applied: Applied) -> None:
        super().learn(applied)
        self._tokens += [each.token for each in applied.results if isinstance(each, SessionGrant)]

    def _op(self, replica: Replica) -> Op:
        dice = self._dice
        token = dice.choice(self._tokens[-3:])
        choices: list[Op] = [
            Accept(dice.choice([None, "g", "h", "i"]), dice.choice([2.0, 6.0])),
            TakeInSession(token, dice.randrange(1, 4)),
            TakeInSession(token, dice.randrange(1, 4)),
            Renew(token, dice.choice([2.0, 6.0])),
            Release(token),
        ]
        return dice.choice(choices) if dice.random() < 0.5 else super()._op(replica)


@pytest.mark.parametrize("seed", range(40))
def test_when_random_logs_with_sessions_are_replayed_then_all_replicas_agree(seed: int) -> None:
    """T8, R40: from the first entry, from one snapshot, and from a snapshot before each entry."""
    log = SessionLog(seed)
    first, second = Replica(SETTINGS), Replica(SETTINGS)
    late = restless = first

    for number in range(80):
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
            assert take_snapshot(other) == take_snapshot(first)
            assert looks(other) == looks(first)


def a_replica(groups: str, settings: EngineSettings = SETTINGS) -> Replica:
    replica = Replica(settings)
    lot = Lot(len(groups), 0.0, tuple(groups))
    replica.apply(an_entry(replica, SendOperation("s", 0.0, (lot,)), at_s=100.0))
    return replica


def test_when_a_writer_is_unsure_of_the_time_then_a_lock_is_granted_from_the_latest() -> None:
    """R41, T8: and judged by the earliest, so that nobody's lock is cut short."""
    replica = a_replica("g")
    replica.apply(an_entry(replica, Accept("g", 10.0), at_s=101.0, margin_s=2.0))

    early = replica.apply(an_entry(replica, Accept("g", 10.0), at_s=112.9, margin_s=2.0))
    in_time = replica.apply(an_entry(replica, Accept("g", 10.0), at_s=113.0, margin_s=2.0))

    assert early.results == (NotGranted(),)
    [granted] = in_time.results
    assert isinstance(granted, SessionGrant)
    assert (granted.session, granted.expires_s) == ("g", 125.0)


def test_when_two_accept_in_one_entry_then_one_has_it_and_the_next_the_next() -> None:
    """R40."""
    replica = a_replica("ggh")

    accepts = [Accept("g", 10.0), Accept("g", 10.0), Accept(None, 10.0), Accept(None, 10.0)]
    applied = replica.apply(an_entry(replica, *accepts, at_s=101.0))

    sessions = [
        each.session if isinstance(each, SessionGrant) else None for each in applied.results
    ]
    assert sessions == ["g", None, "h", None]


def test_when_a_session_is_released_then_what_it_had_is_back_uncounted_and_in_order() -> None:
    """R40: and its receipts are void."""
    replica = a_replica("gg")
    [granted] = replica.apply(an_entry(replica, Accept("g", 10.0), at_s=101.0)).results
    assert isinstance(granted, SessionGrant)
    token = granted.token
    [takings] = replica.apply(an_entry(replica, TakeInSession(token, 2), at_s=101.0)).results
    assert isinstance(takings, Takings)

    held = hold(each.receipt for each in takings.taken)
    again = replica.apply(
        an_entry(replica, Release(token), SettleOperation(held), Take(2, 10.0), at_s=102.0)
    )

    released, refused, retaken = again.results
    assert (released, refused) == (Released(), Refusals((0, 1)))
    assert isinstance(retaken, Takings)
    assert [(each.number, each.attempt) for each in retaken.taken] == [(1, 1), (2, 1)]


def test_when_a_queue_is_purged_then_its_sessions_stay() -> None:
    """R40."""
    replica = a_replica("g")
    [granted] = replica.apply(an_entry(replica, Accept("g", 10.0), at_s=101.0)).results
    assert isinstance(granted, SessionGrant)

    applied = replica.apply(
        an_entry(
            replica, PurgeOperation(), Accept("g", 5.0), Renew(granted.token, 20.0), at_s=102.0
        )
    )

    assert applied.results[1:] == (NotGranted(), SessionGrant(granted.token, "g", 122.0))

"""What a server that was restarted may not remember of leases and deferrals (R8, R9, R17)."""

from __future__ import annotations

import pytest

from gateways.nats.names import COARSE_S
from gateways.nats.receipts import Receipts, receipt_for, subject_of


def held(*receipts: str, ends_at_s: float = 30.0, now_s: float = 0.0) -> Receipts:
    found = Receipts()
    for receipt in receipts:
        found.enter(receipt, ends_at_s, now_s=now_s)
    return found


def test_when_the_server_may_have_forgotten_then_what_it_granted_of_late_is_not_counted_on() -> (
    None
):
    receipts = held("early", "extended")
    receipts.enter("late", 40.0, now_s=10.0)
    receipts.prolong("extended", 45.0, now_s=15.0)

    receipts.doubt(10.0)

    assert receipts.find("late", 16.0) is None
    assert receipts.find("early", 16.0)
    assert receipts.find("extended", 28.0)
    assert receipts.find("extended", 31.0) is None


def test_when_a_subject_is_received_under_twice_then_the_receipts_differ() -> None:
    """R9: a server that forgot a delivery makes the next one under the same subject."""
    subject = "$JS.ACK.a#b.pump.1.1.1.1.1"

    first, second = receipt_for(subject), receipt_for(subject)

    assert first != second
    assert subject_of(first) == subject_of(second) == subject


def test_when_a_server_was_restarted_then_every_lease_ends_sooner() -> None:
    """R8: it has lost the fractions of its seconds."""
    receipts = held("a", ends_at_s=30.0, now_s=0.0)

    receipts.doubt(10.0)

    assert receipts.find("a", 30.0 - COARSE_S - 0.1)
    assert receipts.find("a", 30.0 - COARSE_S) is None


def test_when_a_server_was_restarted_then_what_is_deferred_is_told_again_for_the_rest() -> None:
    """R17: one that it wrote down, and one that it may have forgotten but not its lease."""
    receipts = held("kept", "unsure", "short", ends_at_s=30.0, now_s=0.0)
    receipts.deferred("kept", due_at_s=60.0, now_s=5.0)
    receipts.deferred("unsure", due_at_s=60.0, now_s=15.0)
    receipts.deferred("short", due_at_s=21.0, now_s=5.0)

    receipts.doubt(10.0)
    again = receipts.to_tell_again(10.0, now_s=20.0)

    assert again == [("kept", 40.0), ("unsure", 40.0)]


def test_when_a_deferred_message_may_have_come_to_another_then_nothing_is_told_of_it() -> None:
    """Law 3: the server would take it for the lease of that one."""
    receipts = held("delivered long ago", ends_at_s=30.0, now_s=0.0)
    receipts.enter("delivered just now", 50.0, now_s=15.0)
    receipts.deferred("delivered long ago", due_at_s=90.0, now_s=15.0)
    receipts.deferred("delivered just now", due_at_s=90.0, now_s=15.0)

    receipts.doubt(10.0)

    assert receipts.to_tell_again(10.0, now_s=29.0) == []


def test_when_very_many_are_deferred_then_the_oldest_are_not_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateways.nats.receipts.MAX_DEFERRALS", 2)
    receipts = held("a", "b", "c")
    for receipt in "abc":
        receipts.deferred(receipt, due_at_s=60.0, now_s=1.0)

    assert [receipt for receipt, _ in receipts.to_tell_again(10.0, now_s=12.0)] == ["b", "c"]

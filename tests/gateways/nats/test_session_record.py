"""Session records: free, held or resting, by the server's clock (R40, R41)."""

from __future__ import annotations

import pytest

from gateways.nats.session_locks import SessionRecord, StoredRecord, pack, unpack


def test_when_a_record_is_written_then_it_reads_the_same() -> None:
    record = SessionRecord(owner="me", lease_s=30.0, attempts={7: 2}, rests_until_s=99.5)

    assert unpack(pack(record)) == record


def test_when_nothing_is_worth_keeping_then_nothing_is_written() -> None:
    assert pack(SessionRecord()) == b""
    assert unpack(b"") == SessionRecord()


@pytest.mark.parametrize("value", [b"nonsense", b"[]", b'{"v": 2}', b'{"owner": 1}', b"\xff"])
def test_when_a_record_cannot_be_read_then_it_locks_nothing(value: bytes) -> None:
    assert unpack(value) == SessionRecord()


def test_when_somebody_holds_it_then_it_is_known_for_how_long() -> None:
    held = StoredRecord(record=SessionRecord(owner="a", lease_s=30.0), stored_at_s=100.0)

    assert held.held_for_s(110.0) == 20.0
    assert held.held_for_s(130.0) == 0.0
    assert StoredRecord(stored_at_s=100.0).held_for_s(100.0) == 0.0


def test_when_its_first_message_is_deferred_then_it_rests() -> None:
    resting = StoredRecord(record=SessionRecord(rests_until_s=50.0))

    assert resting.rests_for_s(40.0) == 10.0
    assert resting.rests_for_s(60.0) == 0.0

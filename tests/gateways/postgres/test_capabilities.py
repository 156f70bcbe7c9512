"""What the Postgres gateway says of itself."""

from __future__ import annotations

from gateways.postgres import PostgresGateway


def test_when_asked_what_it_makes_up_by_a_detour_then_it_is_nothing() -> None:
    """R81: all that it can do is native; the contract suite holds it to each of it."""
    can = PostgresGateway().capabilities

    assert can.emulated == frozenset()
    assert can.has_sessions
    assert can.has_session_choice
    assert can.has_native_redrive
    assert can.has_peek
    assert can.has_purge

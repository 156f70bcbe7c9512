"""Chaos on the outbox: posters, relays and the server are killed, and nothing is lost or made up.

Some 2,000 kills by default; `PUMP_OUTBOX_KILLS=10000` makes it ten thousand.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.brokers.postgres_server import PostgresServer

from .outbox_chaos import SAFE, Chaos, Slot
from .outbox_lives import LIBRARIES

pytestmark = [pytest.mark.slow]

KILLS = int(os.environ.get("PUMP_OUTBOX_KILLS", "2000"))
SEED = int(os.environ.get("PUMP_CHAOS_SEED", "7"))
POSTER, RELAY = Slot("post", tuple(LIBRARIES)), Slot("relay")


@pytest.mark.timeout(120 + KILLS / 4)
def test_when_posters_relays_and_the_server_are_killed_then_what_was_committed_is_sent(
    own_postgres: Callable[..., PostgresServer],
) -> None:
    """None lost, none of a rolled-back transaction, doubles only of a batch that was cut short,
    order kept in each group.
    """
    server = own_postgres(*SAFE, is_safe=True)
    slots = (POSTER, POSTER, RELAY, RELAY)
    with Chaos(server, slots, seed=SEED, crash_every=30, fault_rate=0.02) as chaos:
        chaos.run(KILLS)
        committed = chaos.finish()
        errors = chaos.errors()

    print(chaos.ledger.report())
    assert chaos.ledger.complaints(committed) == []
    assert "Traceback" not in errors, errors


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("bug", "complaint"),
    [
        ("delete first", "lost"),
        ("deposit elsewhere", "of no committed transaction"),
        ("lock nothing", "sent twice, and no batch was cut short"),
    ],
)
def test_when_the_outbox_has_a_bug_then_the_ledger_sees_it(
    own_postgres: Callable[..., PostgresServer], bug: str, complaint: str
) -> None:
    server = own_postgres(*SAFE, is_safe=True)
    with Chaos(server, (POSTER, RELAY, RELAY), seed=SEED, bug=bug) as chaos:
        chaos.run(100)
        committed = chaos.finish()

    assert any(complaint in each for each in chaos.ledger.complaints(committed))

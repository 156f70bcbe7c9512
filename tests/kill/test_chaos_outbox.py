"""Chaos on the outbox: posters, relays and the server are killed, and nothing is lost or made up.

`make test-kills`: some 2,000 kills by default; `PUMP_OUTBOX_KILLS=10000` makes it ten thousand.
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
HANDLED_KILLS = KILLS * 3 // 10
SEED = int(os.environ.get("PUMP_CHAOS_SEED", "7"))
POSTER, RELAY, WORKER = Slot("post", tuple(LIBRARIES)), Slot("relay"), Slot("work")


@pytest.mark.timeout(120 + KILLS / 4)
def test_when_posters_relays_and_the_server_are_killed_then_what_was_committed_is_sent(
    own_postgres: Callable[..., PostgresServer],
) -> None:
    """R79: none lost, none of a rolled-back transaction, doubles only of a batch that was cut
    short, order kept in each group.
    """
    server = own_postgres(*SAFE, is_safe=True)
    slots = (POSTER, POSTER, RELAY, RELAY)
    with Chaos(server, slots, seed=SEED, crash_every=30, fault_rate=0.02) as chaos:
        chaos.run(KILLS - HANDLED_KILLS)
        committed = chaos.finish()
        errors = chaos.errors()

    print(chaos.ledger.report())
    assert chaos.ledger.complaints(committed) == []
    assert "Traceback" not in errors, errors


@pytest.mark.timeout(120 + KILLS / 4)
def test_when_handlers_are_killed_too_then_what_was_committed_takes_effect_once(
    own_postgres: Callable[..., PostgresServer],
) -> None:
    """R80, with the inbox: queues, outbox, inbox and effects are in the database that crashes."""
    server = own_postgres(*SAFE, is_safe=True)
    with Chaos(server, (POSTER, WORKER, WORKER), seed=SEED, crash_every=30) as chaos:
        chaos.run(HANDLED_KILLS)
        committed = chaos.finish()
        errors = chaos.errors()

    print(chaos.ledger.report())
    assert chaos.ledger.complaints(committed) == []
    assert "Traceback" not in errors, errors


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("bug", "complaint", "slots"),
    [
        ("delete first", "lost", (POSTER, RELAY)),
        ("deposit elsewhere", "of no committed transaction", (POSTER, RELAY)),
        ("lock nothing", "sent twice, and no batch was cut short", (POSTER, RELAY, RELAY)),
        ("no inbox", "took effect more than once", (POSTER, WORKER)),
    ],
)
def test_when_a_part_has_a_bug_then_the_ledger_sees_it(
    own_postgres: Callable[..., PostgresServer],
    bug: str,
    complaint: str,
    slots: tuple[Slot, ...],
) -> None:
    server = own_postgres(*SAFE, is_safe=True)
    with Chaos(server, slots, seed=SEED, bug=bug) as chaos:
        chaos.run(60)
        committed = chaos.finish()

    assert any(complaint in each for each in chaos.ledger.complaints(committed))

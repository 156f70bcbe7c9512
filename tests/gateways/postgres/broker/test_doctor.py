"""What `pump doctor` finds in a database."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from gateways.postgres import doctor
from pump.findings import Finding, Level
from pump.subscription import MakeChannels

from .bench import Bench

pytestmark = [pytest.mark.broker, pytest.mark.asyncio]


async def examined(bench: Bench, **fields: object) -> list[Finding]:
    async with bench.gateway() as gateway:
        await bench.make(gateway)
        return list(await gateway.examine([bench.subscription(**fields)], {}))


async def test_when_all_is_well_then_nothing_is_wrong(bench: Bench) -> None:
    assert {finding.level for finding in await examined(bench)} == {Level.OK}


async def test_when_a_transaction_is_old_then_it_is_named(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "OLD_TRANSACTION_S", 0.0)
    with psycopg.connect(bench.server.url(), application_name="forgotten") as connection:
        [[process]] = connection.execute("SELECT pg_backend_pid()").fetchall()

        found = await examined(bench)

    [finding] = [each for each in found if "forgotten" in each.detail]
    assert finding.level is Level.WARNING
    assert f"pg_terminate_backend({process})" in finding.remedy


async def test_when_autovacuum_is_off_then_that_is_an_error(bench: Bench) -> None:
    async with bench.gateway() as gateway:
        await bench.make(gateway)
    bench.execute("ALTER TABLE @.message_1 SET (autovacuum_enabled = false)")

    found = await examined(bench)

    [finding] = [each for each in found if each.level is Level.ERROR]
    assert finding.subject == "table message_1"


async def test_when_connections_run_out_then_a_word_is_said(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "NEAR_LIMIT", 0.0)

    found = await examined(bench)

    assert any("connections are in use" in each.detail for each in found)


async def test_when_a_queue_is_missing_then_it_is_an_error_unless_it_will_be_made(
    bench: Bench,
) -> None:
    made, missing = await asyncio.gather(
        examined(bench, dead_letter_queue="dead"),
        examined(bench, dead_letter_queue="dead", make_channels=MakeChannels.VALIDATE),
    )

    assert [each.level for each in made if each.subject == "queue dead"] == [Level.OK]
    assert [each.level for each in missing if each.subject == "queue dead"] == [Level.ERROR]

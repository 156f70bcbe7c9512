"""`pump spill`: what could not be dead-lettered, listed and sent."""

import asyncio
import json
from pathlib import Path

import pytest

from pump import Message
from pump.stores.spill import SpilledMessage, SqliteSpill

from .conftest import Pump, Write

DEFAULT = Path(".pumphouse/spill.db")


def spill(*destinations: str, path: Path = DEFAULT) -> None:
    async def put() -> None:
        for number, destination in enumerate(destinations):
            message = Message(
                body=b"{}",
                id=f"m{number}",
                type="PlaceOrder",
                headers={"originalTopic": "orders", "rejectionReason": "DELIVERY_ERROR"},
            )
            await SqliteSpill(path).put(
                SpilledMessage(message=message, destination=destination, spilled_at_s=number)
            )

    asyncio.run(put())


def depths(pump: Pump) -> dict[str, int]:
    return {each["name"]: each["visible"] for each in json.loads(pump("queues", "--json").stdout)}


def test_when_nothing_is_spilled_then_ls_says_so_and_makes_no_file(
    pump: Pump, folder: Path
) -> None:
    result = pump("spill", "ls")

    assert result.stdout == "Nothing is spilled.\n"
    assert not (folder / DEFAULT).exists()


def test_ls_shows_what_waits_and_for_which_queue(pump: Pump) -> None:
    spill("orders-dead")

    row = pump("spill", "ls").stdout.splitlines()[1].split()

    assert row[:4] == ["m0", "PlaceOrder", "orders", "orders-dead"]
    assert row[-1] == "DELIVERY_ERROR"


def test_ls_answers_in_json(pump: Pump) -> None:
    spill("orders-dead")

    [spilled] = json.loads(pump("spill", "ls", "--json").stdout)

    assert spilled["destination"] == "orders-dead"
    assert spilled["message"]["id"] == "m0"


def test_ls_reads_the_apps_own_spill(pump: Pump, write: Write) -> None:
    write("shop.py", "from pump import App\napp = App('local://', spill='shop.db')\n")
    spill("orders-dead", path=Path("shop.db"))

    assert "m0" in pump("spill", "ls", "--app", "shop:app").stdout
    assert "m0" in pump("spill", "ls", "--path", "shop.db").stdout
    assert "m0" not in pump("spill", "ls").stdout


def test_flush_sends_what_waits_and_then_nothing_is_left(pump: Pump) -> None:
    pump("send", "orders-dead", "{}", "--create")
    spill("orders-dead", "orders-dead")

    result = pump("spill", "flush")

    assert result.exit_code == 0
    assert result.stdout == "Sent 2 message(s); 0 left.\n"
    assert depths(pump) == {"orders-dead": 3}
    assert pump("spill", "ls").stdout == "Nothing is spilled.\n"


def test_when_more_waits_than_one_sweep_takes_then_all_of_it_is_sent(pump: Pump) -> None:
    pump("send", "orders-dead", "{}", "--create")
    spill(*["orders-dead"] * 230)

    result = pump("spill", "flush", "--json")

    assert json.loads(result.stdout) == {"sent": 230, "failed": 0, "left": 0}


def test_when_some_cannot_be_sent_then_they_stay_and_the_exit_code_says_so(pump: Pump) -> None:
    pump("send", "orders-dead", "{}", "--create")
    spill("orders-dead", "nowhere-dead")

    result = pump("spill", "flush", "--json")

    assert result.exit_code == 4, result.stderr
    assert json.loads(result.stdout) == {"sent": 1, "failed": 1, "left": 1}
    assert "nowhere-dead" in result.stderr
    assert "1 message(s) could not be sent" in result.stderr


def test_when_another_process_is_sending_them_then_flush_says_to_try_again(pump: Pump) -> None:
    spill("orders-dead")
    asyncio.run(_claim())

    result = pump("spill", "flush")

    assert result.exit_code == 4, result.stderr
    assert "being sent by another process" in result.stderr


async def _claim() -> None:
    await SqliteSpill(DEFAULT).claim(now_s=1e12, lease_s=3600, most=10)


@pytest.mark.parametrize("command", ["ls", "flush"])
def test_when_the_spill_is_no_database_then_the_file_is_named(
    pump: Pump, write: Write, command: str
) -> None:
    write("broken.db", "this is not a database, and never was one")

    result = pump("spill", command, "--path", "broken.db")

    assert result.exit_code == 4, result.stderr
    assert "error: broken.db: " in result.stderr

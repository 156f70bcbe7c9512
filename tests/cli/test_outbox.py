"""`pump outbox` and `pump relay`: what waits, what was set aside, and sending it."""

import json
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pump import App, Command
from pump.blocking import BlockingApp
from pump.outbox import SqliteOutbox

from .conftest import Pump, Write
from .programs import running

SHOP = """
    from pump import App, Command, Subscription
    from pump.outbox import SqliteOutbox

    class Order(Command):
        number: int

    app = App("local://", outbox=SqliteOutbox("shop.db"))

    @app.handler
    async def place(order: Order) -> None:
        "Never run: the relay only sends."

    app.subscribe(Subscription(queue="orders", request=Order))
"""


class Order(Command):
    number: int


@pytest.fixture
def shop(folder: Path, write: Write) -> Path:
    """An app in the working folder, with two messages in its outbox."""
    write("shop.py", SHOP)
    app = App("memory://", outbox=SqliteOutbox("shop.db"))
    app.route(Order, "orders")
    with (
        BlockingApp(app) as blocking,
        closing(sqlite3.connect("shop.db")) as connection,
        connection,
    ):
        blocking.post_all([Order(number=1), Order(number=2)], transaction=connection)
    return folder


def set_one_aside() -> str:
    """What a relay does that cannot send the first."""
    with closing(sqlite3.connect("shop.db")) as connection, connection:
        connection.execute(
            "INSERT INTO pumphouse_outbox_set_aside"
            " SELECT *, 'MessageTooLarge: a message of 9 bytes', 5 FROM pumphouse_outbox LIMIT 1"
        )
        connection.execute(
            "DELETE FROM pumphouse_outbox WHERE position ="
            " (SELECT position FROM pumphouse_outbox_set_aside)"
        )
        [(id_,)] = connection.execute("SELECT id FROM pumphouse_outbox_set_aside")
    return bytes(id_).decode()


def test_what_waits_is_shown_by_destination(pump: Pump, shop: Path) -> None:
    [heading, row] = pump("outbox", "shop:app").stdout.splitlines()

    assert heading.split() == ["destination", "waiting", "oldest", "set", "aside"]
    assert row.split()[:2] == ["orders", "2"]


def test_what_was_set_aside_is_shown_with_its_reason(pump: Pump, shop: Path) -> None:
    id_ = set_one_aside()

    shown = json.loads(pump("outbox", "shop:app", "--json").stdout)

    assert shown["destinations"][0]["set_aside"] == 1
    assert [(each["id"], each["reason"]) for each in shown["set_aside"]] == [
        (id_, "MessageTooLarge: a message of 9 bytes")
    ]
    assert id_ in pump("outbox", "shop:app").stdout


def test_what_was_set_aside_is_retried_or_dropped(pump: Pump, shop: Path) -> None:
    id_ = set_one_aside()

    assert json.loads(pump("outbox", "shop:app", "--retry", id_, "--json").stdout) == {"retried": 1}
    [stats] = json.loads(pump("outbox", "shop:app", "--json").stdout)["destinations"]
    assert (stats["waiting"], stats["set_aside"]) == (2, 0)

    set_one_aside()
    assert pump("outbox", "shop:app", "--drop", "all", "--yes").stdout == "Dropped 1 message(s).\n"
    [stats] = json.loads(pump("outbox", "shop:app", "--json").stdout)["destinations"]
    assert (stats["waiting"], stats["set_aside"]) == (1, 0)


def test_nothing_is_dropped_without_a_word(pump: Pump, shop: Path) -> None:
    set_one_aside()

    result = pump("outbox", "shop:app", "--drop", "all")

    assert result.exit_code == 2
    assert "--yes" in result.stderr
    assert json.loads(pump("outbox", "shop:app", "--json").stdout)["set_aside"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_relay_sends_until_it_is_told_to_stop(
    pump: Pump, shop: Path, number: signal.Signals
) -> None:
    arguments = ("relay", "shop:app", "--log-format", "json", "--log-level", "debug")
    with running(*arguments, folder=shop) as program:
        program.err.wait_for("outbox.sent")
        program.signal(number)
        assert program.wait() == 0

    [queue] = json.loads(pump("queues", "--json").stdout)
    assert (queue["name"], queue["visible"]) == ("orders", 2)
    assert json.loads(pump("outbox", "shop:app", "--json").stdout)["destinations"] == []


@pytest.mark.parametrize("command", ["outbox", "relay"])
def test_an_app_without_an_outbox_is_told_the_remedy(
    pump: Pump, folder: Path, write: Write, command: str
) -> None:
    write("bare.py", "from pump import App\napp = App('memory://')\n")

    result = pump(command, "bare:app")

    assert result.exit_code == 3
    assert "App(outbox=" in result.stderr


def test_doctor_says_what_was_set_aside(pump: Pump, shop: Path) -> None:
    set_one_aside()

    findings = json.loads(pump("doctor", "shop:app", "--json").stdout)["findings"]

    [found] = [each for each in findings if each["subject"] == "outbox"]
    assert found["level"] == "warning"
    assert "1 message(s) were set aside" in found["detail"]
    assert "--retry" in found["remedy"]


def test_doctor_says_what_waits_without_a_relay(pump: Pump, shop: Path) -> None:
    with closing(sqlite3.connect("shop.db")) as connection, connection:
        connection.execute("UPDATE pumphouse_outbox SET posted_at_s = posted_at_s - 3600")

    findings = json.loads(pump("doctor", "shop:app", "--json").stdout)["findings"]

    [found] = [each for each in findings if each["subject"] == "outbox"]
    assert "2 message(s) wait, the oldest for 1h" in found["detail"]
    assert "pump relay" in found["remedy"]

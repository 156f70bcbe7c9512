"""The test kit: builders make valid things, and only the contract suite needs pytest."""

from __future__ import annotations

import subprocess
import sys

import pytest

import pump.testing
from pump.outcome import ABANDON, ACK, Defer
from pump.testing import a_delivery, a_message, a_subscription, abandon, ack, defer

WITHOUT_PYTEST = """
import sys
sys.modules["pytest"] = None
import pump.testing
pump.testing.VirtualClock()
loaded = [name for name in sys.modules if name.split(".")[0] in ("gateways", "handlers")]
assert not loaded, loaded
"""


def test_when_pytest_is_not_installed_then_the_kit_can_be_imported() -> None:
    run = subprocess.run([sys.executable, "-c", WITHOUT_PYTEST], capture_output=True, check=False)

    assert run.returncode == 0, run.stderr.decode()


@pytest.mark.parametrize("name", pump.testing.__all__)
def test_when_a_name_is_exported_then_it_is_there(name: str) -> None:
    assert getattr(pump.testing, name)


def test_when_a_name_is_not_exported_then_asking_for_it_is_an_error() -> None:
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = pump.testing.nothing_here


def test_when_nothing_is_said_then_builders_make_things_of_their_own() -> None:
    first, second = a_delivery(), a_delivery()

    assert first.message.id != second.message.id
    assert first.receipt != second.receipt
    assert first.attempt == 1
    assert a_subscription().queue == "orders"


def test_when_something_is_said_then_builders_pass_it_on() -> None:
    message = a_message("žluť", type="Greet", headers={"tenant": "north"})

    delivery = a_delivery(message, queue="greetings", attempt=3)

    assert (delivery.message.body, delivery.message.type) == ("žluť".encode(), "Greet")
    assert (delivery.queue, delivery.attempt) == ("greetings", 3)
    assert a_subscription("greetings", request=str).request is str


def test_when_settling_in_short_then_the_action_is_what_it_says() -> None:
    delivery = a_delivery()

    settlements = [ack(delivery), defer(delivery, seconds=30), abandon(delivery)]

    assert [settlement.action for settlement in settlements] == [ACK, Defer(30), ABANDON]
    assert all(settlement.delivery is delivery for settlement in settlements)

"""The test kit: builders make valid things, and only the contract suite needs pytest."""

from __future__ import annotations

import subprocess
import sys

import pytest

import pump.testing
from gateways.memory import MemoryGateway
from pump.outcome import ABANDON, ACK, Defer
from pump.testing import VirtualClock, a_delivery, a_message, a_subscription, abandon, ack, defer
from pump.testing.contract import Rig
from pump.testing.contract.workshop import Job, Workshop, acked_ids

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


async def test_when_a_receive_is_late_then_its_text_says_which_how_many_and_for_how_long() -> None:
    clock = VirtualClock()
    rig = Rig(gateway=MemoryGateway(clock), clock=clock)
    queue = await rig.open_queue()
    waiting = [queue.start_receive(wait_s=60), queue.start_receive(wait_s=60, max_count=5)]
    await clock.advance(12)
    await queue.send(a_message())
    await clock.settle()

    assert rig.late(*waiting) == (
        f"1 of 2 still waiting: a receive of up to 5 from {queue.name} that waits 60 s, for 12 s"
    )
    await rig.aclose()


async def test_when_something_is_waited_for_in_vain_then_the_text_says_what_and_what_was_seen() -> (
    None
):
    async def handle(job: Job) -> None:
        """Done at once."""

    clock = VirtualClock()
    rig = Rig(gateway=MemoryGateway(clock), clock=clock)
    shop = Workshop(rig, handle)
    async with shop.working():
        [id_] = await shop.post("work")
        with pytest.raises(AssertionError) as caught:
            await shop.until(lambda: len(acked_ids(shop)) == 2, ticks=3)

    said = str(caught.value)
    assert "after 30 s still not so" in said
    assert "len(acked_ids(shop)) == 2" in said
    assert "1 × ack" in said
    assert f"ack {id_}" in said
    assert "processed" in said
    await rig.aclose()

"""What cannot be asked of a subscription is refused, with the remedy."""

from __future__ import annotations

import pytest

from pump import UnacceptableLimit
from pump.errors import ConfigurationError, UnacceptableLimitReached
from pump.performer import ControlRefused
from pump.testing.builders import a_message

from ..core.notes import with_notes
from ..core.rig import Gate, Rig

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.mark.parametrize("action", ["pause", "resume", "drain"])
async def test_when_there_is_no_such_subscription_then_the_known_ones_are_named(
    action: str,
) -> None:
    async with Rig() as rig:
        await rig.start()

        with pytest.raises(ConfigurationError, match="use one of orders"):
            getattr(rig.dispatcher, action)("nobody")


@pytest.mark.parametrize("action", ["pause", "resume", "drain", "scale"])
async def test_when_it_has_stopped_for_good_then_that_and_the_remedy_are_said(action: str) -> None:
    rig = Rig(unacceptable_limit=UnacceptableLimit(count=1))
    with_notes(rig)
    async with rig:
        await rig.start()
        await rig.send_raw(a_message(b"?", type="Work"))
        await rig.clock.settle()
        assert rig.dispatcher.performers[0].state == "stopped"

        arguments = ("orders", 3) if action == "scale" else ("orders",)
        with pytest.raises(ControlRefused, match=r"1 unacceptable messages .* restart the app"):
            getattr(rig.dispatcher, action)(*arguments)
        with pytest.raises(UnacceptableLimitReached):
            await rig.finish()


@pytest.mark.parametrize("action", ["pause", "resume", "drain"])
async def test_when_the_whole_app_drains_then_it_cannot_be_told_otherwise(action: str) -> None:
    """Law 5."""
    gate = Gate()
    async with Rig(gate) as rig:
        await rig.send(1)
        await rig.start()
        await rig.drain()

        with pytest.raises(ControlRefused, match="the whole app drains"):
            getattr(rig.dispatcher, action)("orders")

        gate.open()
        await rig.clock.settle()
        assert rig.running is not None
        assert rig.running.done()
        assert rig.states == ["running", "draining", "stopped"]

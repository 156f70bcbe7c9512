"""The link: nobody who waits at it is forgotten."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from gateways.servicebus.receive_link import ReceiveLink
from pump.clock import SYSTEM_CLOCK
from pump.errors import ConnectionFailed
from pump.tasks import BackgroundTasks


def broken_link() -> ReceiveLink:
    """A link whose pulling breaks in a way that nobody has thought of."""

    def receiver(queue: str) -> Any:
        raise RuntimeError("nobody has thought of this")

    connections: Any = SimpleNamespace(
        clock=SYSTEM_CLOCK,
        settings=SimpleNamespace(look_s=0.1),
        address="sb://shop",
        chores=BackgroundTasks("test"),
        receiver=receiver,
    )

    async def discard(pulled: object) -> None:
        """Nothing comes."""

    return ReceiveLink(connections, "orders", discard)


async def test_when_pulling_breaks_then_who_waits_is_told_and_who_comes_later_too() -> None:
    link = broken_link()

    for _ in range(2):
        with pytest.raises(ConnectionFailed, match="nobody has thought of this"):
            await asyncio.wait_for(link.receive(1, SYSTEM_CLOCK.now_s() + 60), 5)

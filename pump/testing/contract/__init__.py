"""The contract suite: what every gateway must do, for authors of one.

    class TestMyGateway(GatewayContract):
        @pytest.fixture
        async def rig(self) -> AsyncIterator[Rig]:
            clock = VirtualClock()
            gateway = MyGateway(clock=clock)
            await gateway.open()
            rig = Rig(gateway=gateway, clock=clock)
            yield rig
            await rig.aclose()

Tests of what the gateway's `Capabilities` do not promise are skipped. A subclass of one part,
such as `sending.SendingContract`, runs that part alone. Needs pytest and pytest-asyncio.
"""

from __future__ import annotations

import pkgutil

import pytest

# Before the parts are imported, so that their assertions explain themselves.
pytest.register_assert_rewrite(
    *(f"{__name__}.{part.name}" for part in pkgutil.iter_modules(__path__))
)

from .rig import Channel, ContractClock, Network, Rig, WaitingClock  # noqa: E402
from .suite import GatewayContract, PortContract, PumpContract  # noqa: E402

__all__ = [
    "Channel",
    "ContractClock",
    "GatewayContract",
    "Network",
    "PortContract",
    "PumpContract",
    "Rig",
    "WaitingClock",
]

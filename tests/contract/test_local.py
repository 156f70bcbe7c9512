"""The local gateway keeps the contract, in the process that hosts the engine and beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from gateways._engine.engine import QueueEngine
from gateways.local import LocalGateway
from gateways.local.client import LocalClient
from pump.testing import VirtualClock
from pump.testing.contract import GatewayContract, Rig, WaitingClock

from ..loops import BOTH_LOOPS
from .conftest import CountCalls


class TestLocal(GatewayContract):
    """The engine in this process, on virtual time."""

    @pytest.fixture
    async def rig(self, tmp_path: Path, count_calls: CountCalls) -> AsyncIterator[Rig]:
        clock = VirtualClock()

        async def open_gateway() -> LocalGateway:
            gateway = LocalGateway(tmp_path, clock)
            await gateway.open()
            return gateway

        rig = Rig(
            gateway=await open_gateway(),
            clock=clock,
            open_again=open_gateway,
            in_another_process=partial(LocalGateway, tmp_path),
            settle_requests=count_calls(QueueEngine, "settle"),
        )
        yield rig
        await rig.aclose()


@pytest.mark.loops("uvloop")
@pytest.mark.slow
class TestLocalOnUvloop(TestLocal):
    """The same on the loop that `pump run` uses."""


@BOTH_LOOPS
@pytest.mark.slow
class TestLocalAsASecondProcess(GatewayContract):
    """The engine behind a socket, in real time, as a second process on the machine has it."""

    @pytest.fixture
    async def rig(self, tmp_path: Path, count_calls: CountCalls) -> AsyncIterator[Rig]:
        clock = WaitingClock()
        host = LocalGateway(tmp_path, clock)
        await host.open()

        async def open_gateway() -> LocalGateway:
            gateway = LocalGateway(tmp_path, clock)
            await gateway.open()
            return gateway

        rig = Rig(
            gateway=await open_gateway(),
            clock=clock,
            tick_s=0.5,
            poll_s=0.1,
            slack_s=0.5,
            ordered_options={"deduplication_window": 2.0},
            deduplication_window_s=2.0,
            open_again=open_gateway,
            in_another_process=partial(LocalGateway, tmp_path),
            settle_requests=count_calls(LocalClient, "settle"),
        )
        yield rig
        await rig.aclose()
        await host.aclose()

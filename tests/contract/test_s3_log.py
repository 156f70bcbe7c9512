"""The S3 gateway's layout of group commit keeps the contract, on a model of S3 in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateways.s3.gateway import S3Gateway, Storage
from gateways.s3.layout import Layout
from gateways.s3.log.queue import LoggedQueue
from gateways.s3.settings import S3Settings
from gateways.s3.store.objects import ServerTime
from pump.testing import VirtualClock
from pump.testing.contract import GatewayContract, Rig
from tests.gateways.s3.model_store import ModelS3, ModelStore

from .conftest import CountCalls
from .loop_contract import LoopContract


class OnTheModel:
    """One process; the store's time is known to the second, hence the slack."""

    @pytest.fixture
    async def rig(self, count_calls: CountCalls) -> AsyncIterator[Rig]:
        clock = VirtualClock()
        s3 = ModelS3(clock.time_s)

        async def open_gateway() -> S3Gateway:
            time = ServerTime(clock.now_s)
            store = ModelStore(s3, time, clock.now_s)
            settings = S3Settings(bucket="bucket", layout=Layout.LOG)
            gateway = S3Gateway(settings, clock, storage=Storage(store=store, time=time))
            await gateway.open()
            return gateway

        rig = Rig(
            gateway=await open_gateway(),
            clock=clock,
            slack_s=2.1,
            open_again=open_gateway,
            is_simulated=True,
            settle_requests=count_calls(LoggedQueue, "_do"),
        )
        yield rig
        await rig.aclose()


class TestS3Log(OnTheModel, GatewayContract):
    """All of the contract."""


@pytest.mark.loops("uvloop")
class TestS3LogOnUvloop(OnTheModel, LoopContract):
    """On the loop that `pump run` uses."""

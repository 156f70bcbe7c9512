"""A hundred races of two consumers over one lease that ends, with `OnceOnly` and reject: no
message that was acked is ever a dead letter, on any gateway.
"""

from __future__ import annotations

from typing import Any

import pytest

from gateways.s3 import Layout, TransportKind
from handlers import OnceOnly
from pump.stores.inbox import MemoryInbox
from pump.testing.contract import Rig
from pump.testing.contract.by_hand import race_consumers, race_pumps
from tests.brokers.aws_account import AwsAccount

from . import (
    test_local,
    test_memory,
    test_nats,
    test_postgres,
    test_rabbitmq,
    test_s3_leases,
    test_s3_log,
    test_servicebus,
)
from .s3_rigs import OnMoto, travelling_moto  # noqa: F401
from .sqs_rigs import LOCALSTACK, OnFifoQueues, OnSqs

in_real_time = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def account(aws: AwsAccount) -> AwsAccount:
    return aws


def rig_of(contract: type) -> Any:
    """The fixture with which a gateway keeps the contract."""
    return vars(contract)["rig"]


class Races:
    """A hundred at once of each kind: one pump against another, with an inbox that both share, and
    one consumer by hand against another.

    What a virtual clock cannot hurry is the number of calls, so the seeds differ instead.
    """

    async def test_when_a_hundred_race_then_none_that_was_acked_is_a_dead_letter(
        self, rig: Rig
    ) -> None:
        """R6, R8, R27."""
        await race_pumps(rig, seed=100, count=100, middleware=[OnceOnly(MemoryInbox())])
        await race_consumers(rig, seed=100, count=100)


class TestInMemory(Races):
    rig = rig_of(test_memory.TestMemory)


class TestOnLocal(Races):
    rig = rig_of(test_local.TestLocal)


class TestOnS3Leases(Races):
    rig = rig_of(test_s3_leases.TestS3Leases)


class TestOnS3Log(Races):
    rig = rig_of(test_s3_log.OnTheModel)


class TestOnNats(Races):
    pytestmark = in_real_time
    rig = rig_of(test_nats.OnNats)


class TestOnPostgres(Races):
    """In virtual time: not slow, as those in real time are."""

    pytestmark = pytest.mark.broker
    rig = rig_of(test_postgres.TestPostgres)


class TestOnRabbitMQ(Races):
    pytestmark = in_real_time
    rig = rig_of(test_rabbitmq.OnRabbitMQ)


class TestOnServiceBus(Races):
    pytestmark = in_real_time
    rig = rig_of(test_servicebus.OnThePeer)


class TestOnSqs(Races):
    pytestmark = in_real_time
    transport = TransportKind.AIOBOTO3
    pace = LOCALSTACK
    rig = rig_of(OnSqs)


class TestOnSqsFifo(Races):
    pytestmark = in_real_time
    transport = TransportKind.BOTO3
    pace = LOCALSTACK
    rig = rig_of(OnFifoQueues)


class TestOnS3LeasesForReal(Races):
    pytestmark = in_real_time
    transport = TransportKind.AIOBOTO3
    layout = Layout.LEASES
    rig = rig_of(OnMoto)


class TestOnS3LogForReal(Races):
    pytestmark = in_real_time
    transport = TransportKind.AIOBOTO3
    layout = Layout.LOG
    rig = rig_of(OnMoto)

"""The SQS gateway keeps the contract on `pump local` as it does on LocalStack (R34, R44)."""

from __future__ import annotations

import pytest

from gateways.sqs import TransportKind
from tests.brokers.aws_account import AwsAccount

from .sqs_rigs import PUMP_LOCAL, OnFifoQueues, OnStandardQueues, OverTheTransport

pytestmark = pytest.mark.broker


@pytest.fixture
def account(local_aws: AwsAccount) -> AwsAccount:
    return local_aws


class TestPumpLocalWithLean(OnStandardQueues):
    transport = TransportKind.LEAN
    pace = PUMP_LOCAL


class TestPumpLocalFifoWithLean(OnFifoQueues):
    transport = TransportKind.LEAN
    pace = PUMP_LOCAL


class TestPumpLocalWithBoto3(OverTheTransport):
    """All of it runs on LocalStack."""

    transport = TransportKind.BOTO3
    pace = PUMP_LOCAL


class TestPumpLocalWithAioboto3(OverTheTransport):
    """All of it runs on LocalStack."""

    transport = TransportKind.AIOBOTO3
    pace = PUMP_LOCAL


class TestPumpLocalFifoWithBoto3(OnFifoQueues):
    transport = TransportKind.BOTO3
    pace = PUMP_LOCAL


class TestPumpLocalFifoWithAioboto3(OnFifoQueues):
    transport = TransportKind.AIOBOTO3
    pace = PUMP_LOCAL

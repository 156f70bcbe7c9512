"""The SQS gateway keeps the contract on LocalStack, through both SDKs (R34)."""

from __future__ import annotations

import pytest

from gateways.sqs import TransportKind
from tests.brokers.aws_account import AwsAccount

from .sqs_rigs import LOCALSTACK, OnFifoQueues, OnStandardQueues

pytestmark = pytest.mark.broker


@pytest.fixture
def account(aws: AwsAccount) -> AwsAccount:
    return aws


class TestSqsWithBoto3(OnStandardQueues):
    transport = TransportKind.BOTO3
    pace = LOCALSTACK


class TestSqsWithAioboto3(OnStandardQueues):
    transport = TransportKind.AIOBOTO3
    pace = LOCALSTACK


class TestSqsFifoWithBoto3(OnFifoQueues):
    transport = TransportKind.BOTO3
    pace = LOCALSTACK


class TestSqsFifoWithAioboto3(OnFifoQueues):
    transport = TransportKind.AIOBOTO3
    pace = LOCALSTACK

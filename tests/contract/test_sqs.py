"""The SQS gateway keeps the contract on LocalStack, through every transport (R34)."""

from __future__ import annotations

import pytest

from gateways.sqs import TransportKind
from tests.brokers.aws_account import AwsAccount

from .sqs_rigs import LOCALSTACK, OnFifoQueues, OnStandardQueues, OverTheTransport

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


class TestSqsWithLean(OverTheTransport):
    """All of it runs on `pump local`."""

    transport = TransportKind.LEAN
    pace = LOCALSTACK

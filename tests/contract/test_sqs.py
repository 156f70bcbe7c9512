"""The SQS gateway keeps the contract on LocalStack, which is nobody's but its makers' idea of SQS
(R34): all of it through `lean`, whose requests and whose reading of answers are our own, and of
the SDKs, which AWS makes and tests, what can differ between them. On `pump local` every transport
keeps all of it.
"""

from __future__ import annotations

import pytest

from gateways.sqs import TransportKind
from tests.brokers.aws_account import AwsAccount

from .sqs_rigs import LOCALSTACK, OnFifoQueues, OnStandardQueues, Smoke

pytestmark = pytest.mark.broker


@pytest.fixture
def account(aws: AwsAccount) -> AwsAccount:
    return aws


class TestSqsWithLean(OnStandardQueues):
    transport = TransportKind.LEAN
    pace = LOCALSTACK


class TestSqsFifoWithLean(OnFifoQueues):
    transport = TransportKind.LEAN
    pace = LOCALSTACK


class TestSqsWithBoto3(Smoke):
    transport = TransportKind.BOTO3
    pace = LOCALSTACK


class TestSqsWithAioboto3(Smoke):
    transport = TransportKind.AIOBOTO3
    pace = LOCALSTACK

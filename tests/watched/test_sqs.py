"""A watched pump on SQS: LocalStack, through both SDKs (R34)."""

from __future__ import annotations

import pytest

from gateways.sqs import SqsGateway, TransportKind
from tests.brokers.aws_account import AwsAccount
from tests.contract.sqs_rigs import sqs_settings

from .suite import MakeGateway, Watched

pytestmark = pytest.mark.broker


class TestWatchedOnLocalStackWithBoto3(Watched):
    @pytest.fixture
    def make_gateway(self, aws: AwsAccount) -> MakeGateway:
        return lambda: SqsGateway(sqs_settings(aws, TransportKind.BOTO3))


class TestWatchedOnLocalStackWithAioboto3(Watched):
    @pytest.fixture
    def make_gateway(self, aws: AwsAccount) -> MakeGateway:
        return lambda: SqsGateway(sqs_settings(aws, TransportKind.AIOBOTO3))

"""Payload encryption on SQS: LocalStack and `pump local`, through both SDKs (R34)."""

from __future__ import annotations

from typing import ClassVar

import pytest

from gateways.sqs import SqsGateway, TransportKind
from tests.brokers.aws_account import AwsAccount
from tests.contract.sqs_rigs import sqs_settings

from .bench import Shop
from .suite import OpenShop, Sealed

pytestmark = pytest.mark.broker


class _SealedOnSqs(Sealed):
    transport: ClassVar[TransportKind]
    suffix: ClassVar[str] = ""

    def shops(self, account: AwsAccount) -> OpenShop:
        settings = sqs_settings(account, self.transport)
        return lambda encryption: Shop(SqsGateway(settings), encryption, "orders")


class TestSealedOnLocalStackWithBoto3(_SealedOnSqs):
    transport = TransportKind.BOTO3

    @pytest.fixture
    def open_shop(self, aws: AwsAccount) -> OpenShop:
        return self.shops(aws)


class TestSealedOnLocalStackWithAioboto3(_SealedOnSqs):
    transport = TransportKind.AIOBOTO3

    @pytest.fixture
    def open_shop(self, aws: AwsAccount) -> OpenShop:
        return self.shops(aws)


class TestSealedOnPumpLocal(_SealedOnSqs):
    transport = TransportKind.AIOBOTO3

    @pytest.fixture
    def open_shop(self, local_aws: AwsAccount) -> OpenShop:
        return self.shops(local_aws)

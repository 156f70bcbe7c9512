"""The S3 gateway keeps the contract on moto, in both layouts and through both SDKs (R34); one of
them runs on uvloop.
"""

from __future__ import annotations

import pytest

from gateways.s3 import Layout, TransportKind
from pump.testing.contract import GatewayContract
from pump.testing.contract.durability import DurabilityContract
from pump.testing.contract.sending import SendingContract
from pump.testing.contract.settling import SettlingContract

from .s3_rigs import OnMoto, travelling_moto  # noqa: F401

pytestmark = pytest.mark.broker


class SomeOfIt(SendingContract, SettlingContract, DurabilityContract):
    """What has most to do with the SDK. All of it runs once on each layout and once through each
    SDK: beneath a layout they differ in one adapter only.
    """


@pytest.mark.loops("uvloop")
class TestLeases(OnMoto, GatewayContract):
    transport = TransportKind.AIOBOTO3
    layout = Layout.LEASES


class TestLog(OnMoto, GatewayContract):
    transport = TransportKind.BOTO3
    layout = Layout.LOG


class TestLeasesWithBoto3(OnMoto, SomeOfIt):
    transport = TransportKind.BOTO3
    layout = Layout.LEASES


class TestLogWithAioboto3(OnMoto, SomeOfIt):
    transport = TransportKind.AIOBOTO3
    layout = Layout.LOG

"""The S3 gateway sends, receives and settles on a second store too: on LocalStack (R34)."""

from __future__ import annotations

import pytest

from gateways.s3 import Layout, TransportKind
from pump.testing.contract.durability import LifecycleContract
from pump.testing.contract.sending import SendingContract
from pump.testing.contract.settling import SettlingContract

from .s3_rigs import OnLocalStack, s3_account  # noqa: F401

pytestmark = pytest.mark.broker


class SomeOfIt(SendingContract, SettlingContract, LifecycleContract):
    """All of it runs on moto, whose time can be skipped."""


class TestLeases(OnLocalStack, SomeOfIt):
    transport = TransportKind.AIOBOTO3
    layout = Layout.LEASES


class TestLog(OnLocalStack, SomeOfIt):
    transport = TransportKind.BOTO3
    layout = Layout.LOG

"""The S3 gateway keeps what has most to do with requests through the lean transport too (R34)."""

from __future__ import annotations

import pytest

from gateways.s3 import Layout, TransportKind
from pump.testing.contract.concurrency import ConcurrencyContract
from pump.testing.contract.durability import DurabilityContract
from pump.testing.contract.sending import SendingContract
from pump.testing.contract.settling import SettlingContract

from .s3_rigs import OnMoto, travelling_moto  # noqa: F401

pytestmark = pytest.mark.broker


class SomeOfIt(SendingContract, SettlingContract, ConcurrencyContract, DurabilityContract):
    """The layouts are the same above another transport."""


class TestLeasesWithLean(OnMoto, SomeOfIt):
    transport = TransportKind.LEAN
    layout = Layout.LEASES


class TestLogWithLean(OnMoto, SomeOfIt):
    transport = TransportKind.LEAN
    layout = Layout.LOG

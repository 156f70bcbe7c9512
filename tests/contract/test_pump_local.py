"""The SQS gateway keeps the contract on `pump local` through every transport, in virtual time (R34,
R44): real SDKs and real sockets, and a server on the test's own event loop: asyncio's for half of
them, uvloop for the others.

The server as a process is held by `tests/brokers/test_pump_local.py`, `tests/sqs_clients` and
`tests/kill`.
"""

from __future__ import annotations

import pytest

from gateways.sqs import TransportKind

from .sqs_rigs import FifoInVirtualTime, StandardInVirtualTime

pytestmark = pytest.mark.broker

ON_UVLOOP = pytest.mark.loops("uvloop")


class TestPumpLocalWithLean(StandardInVirtualTime):
    transport = TransportKind.LEAN
    is_on_disk = True


@ON_UVLOOP
class TestPumpLocalFifoWithLean(FifoInVirtualTime):
    transport = TransportKind.LEAN
    is_on_disk = True


class TestPumpLocalWithBoto3(StandardInVirtualTime):
    transport = TransportKind.BOTO3


@ON_UVLOOP
class TestPumpLocalFifoWithBoto3(FifoInVirtualTime):
    transport = TransportKind.BOTO3


@ON_UVLOOP
class TestPumpLocalWithAioboto3(StandardInVirtualTime):
    transport = TransportKind.AIOBOTO3


class TestPumpLocalFifoWithAioboto3(FifoInVirtualTime):
    transport = TransportKind.AIOBOTO3

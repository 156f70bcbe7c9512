"""Fixtures of the tests against LocalStack: both SDKs, both kinds of queue."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from gateways.sqs import TransportKind
from tests.brokers.aws_account import AwsAccount

from .bench import Bench
from .plain_sqs import PlainSqs


@pytest.fixture(params=list(TransportKind), ids=[kind.value for kind in TransportKind])
def transport(request: pytest.FixtureRequest) -> TransportKind:
    """R34: what is shown here is shown for all of them, but for what runs with `ONE_TRANSPORT`."""
    kind: TransportKind = request.param
    return kind


@pytest.fixture(params=["", ".fifo"], ids=["standard", "fifo"])
def suffix(request: pytest.FixtureRequest) -> str:
    """How the names of a test's queues end."""
    ending: str = request.param
    return ending


@pytest.fixture
async def bench(aws: AwsAccount, transport: TransportKind) -> AsyncIterator[Bench]:
    """A bench on an account of the test's own."""
    plain = PlainSqs(aws)
    async with AsyncExitStack() as stack:
        stack.callback(plain.close)
        yield Bench(aws, transport, plain, stack)

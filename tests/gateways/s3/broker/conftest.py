"""Fixtures of the tests against real servers: both SDKs, a bucket of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest

from gateways.s3 import TransportKind
from tests.brokers.aws_account import AwsAccount
from tests.brokers.moto import moto_server

from .bucket import Bucket, make_bucket


@pytest.fixture(params=list(TransportKind), ids=[kind.value for kind in TransportKind])
def transport(request: pytest.FixtureRequest) -> TransportKind:
    """R34: whatever is shown here is shown for both."""
    kind: TransportKind = request.param
    return kind


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    """This process's moto."""
    with moto_server() as server:
        yield server.url


@pytest.fixture
async def bucket(aws: AwsAccount, transport: TransportKind) -> AsyncIterator[Bucket]:
    """A bucket on LocalStack."""
    async with AsyncExitStack() as stack:
        yield await make_bucket(aws, transport, stack)


@pytest.fixture(params=["localstack", "moto"])
async def any_bucket(
    request: pytest.FixtureRequest, transport: TransportKind, no_aws_settings: None
) -> AsyncIterator[Bucket]:
    """A bucket on each of the stores that honour conditions."""
    async with AsyncExitStack() as stack:
        if request.param == "moto":
            account = AwsAccount(endpoint_url=request.getfixturevalue("moto"))
        else:
            account = request.getfixturevalue("aws")
        yield await make_bucket(account, transport, stack)

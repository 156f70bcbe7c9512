"""The same tests in both of SQS's protocols, with botocore as the client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.brokers.aws_account import AwsAccount

from .bench import Bench
from .clients import open_client


@pytest.fixture(scope="session")
def bench_account(local_sqs: str) -> AwsAccount:
    """One account for all of these tests: their queues have names of their own."""
    return AwsAccount(endpoint_url=local_sqs)


@pytest.fixture(scope="session")
def json_client(bench_account: AwsAccount) -> Iterator[Any]:
    client = open_client(bench_account, "json")
    yield client
    client.close()


@pytest.fixture(scope="session")
def query_client(bench_account: AwsAccount) -> Iterator[Any]:
    client = open_client(bench_account, "query")
    yield client
    client.close()


@pytest.fixture
def json_bench(json_client: Any, bench_account: AwsAccount) -> Iterator[Bench]:
    """For what takes seconds, or what the older protocol's client has no words for."""
    bench = Bench(json_client, "json", bench_account.account_id, bench_account.region)
    yield bench
    bench.sweep()


@pytest.fixture
def query_bench(query_client: Any, bench_account: AwsAccount) -> Iterator[Bench]:
    bench = Bench(query_client, "query", bench_account.account_id, bench_account.region)
    yield bench
    bench.sweep()


@pytest.fixture(params=["json", "query"])
def bench(request: pytest.FixtureRequest) -> Bench:
    """The test runs once in each protocol."""
    found = request.getfixturevalue(f"{request.param}_bench")
    assert isinstance(found, Bench)
    return found

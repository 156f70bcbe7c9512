"""TLS: a server has to be who it says, over every transport (R34)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pump.errors import ConnectionFailed

from .certificates import Authority
from .conftest import Connect
from .tls_aws import TlsAws


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture(params=["localhost"])
def certified_host(request: pytest.FixtureRequest) -> str:
    """Whom the server's certificate is for."""
    return str(request.param)


@pytest.fixture
async def aws(authority: Authority, certified_host: str) -> AsyncIterator[TlsAws]:
    async with TlsAws(authority.server_context(certified_host)) as server:
        yield server


async def test_when_the_certificate_is_trusted_then_calls_get_through(
    aws: TlsAws, connect: Connect, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bundle is found where the SDK finds it."""
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.bundle))

    await connect().call("sqs", "list_queues", {})

    assert [seen.operation for seen in aws.seen] == ["ListQueues"]


async def test_when_nobody_vouches_for_the_certificate_then_nothing_is_sent(
    aws: TlsAws, connect: Connect
) -> None:
    with pytest.raises(ConnectionFailed):
        await connect(max_attempts=1).call("sqs", "list_queues", {})

    assert aws.seen == []


@pytest.mark.parametrize("certified_host", ["elsewhere.example"], indirect=True)
async def test_when_the_certificate_is_for_another_host_then_nothing_is_sent(
    aws: TlsAws, connect: Connect, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or whoever has any certificate could read the messages and sign for us."""
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.bundle))

    with pytest.raises(ConnectionFailed):
        await connect(max_attempts=1).call("sqs", "list_queues", {})

    assert aws.seen == []

"""Over TLS, S3 is spared the hashing of bodies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateways._aws.lean.s3 import crc32

from ..certificates import Authority
from ..conftest import Connect
from ..tls_aws import TlsAws


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
async def aws(authority: Authority) -> AsyncIterator[TlsAws]:
    async with TlsAws(authority.server_context("localhost")) as server:
        yield server


async def test_when_an_object_is_put_over_tls_then_a_checksum_stands_for_its_hash(
    aws: TlsAws, connect: Connect, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with the SDKs: only where TLS and a checksum vouch for it, and only for what is put."""
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.bundle))
    transport = connect()

    await transport.call("s3", "put_object", {"Bucket": "bucket", "Key": "k", "Body": b"x"})
    await transport.call("s3", "get_object", {"Bucket": "bucket", "Key": "k"})
    await transport.call("sqs", "list_queues", {})

    put, get, listed = aws.seen
    assert put.headers["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"
    assert put.headers["x-amz-checksum-crc32"] == crc32(b"x")
    assert len(get.headers["x-amz-content-sha256"]) == 64
    assert "x-amz-content-sha256" not in listed.headers

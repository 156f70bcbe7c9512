"""TLS: KMS has to be who it says, for it hands out keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from botocore.exceptions import BotoCoreError

from pump.crypto.aiobotocore_client import kms_client
from tests.gateways.aws.certificates import Authority
from tests.gateways.aws.tls_aws import TlsAws


async def ask(aws: TlsAws, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.bundle))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    async with kms_client(region="eu-west-1", endpoint_url=aws.url, profile=None) as client:
        await client.list_keys()


async def test_when_the_certificate_is_trusted_then_kms_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)

    async with TlsAws(authority.server_context("localhost")) as aws:
        await ask(aws, authority, monkeypatch)
        assert len(aws.seen) == 1


async def test_when_the_certificate_is_for_another_host_then_kms_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or whoever has any certificate could choose our keys."""
    authority = Authority(tmp_path)

    async with TlsAws(authority.server_context("elsewhere.example")) as aws:
        with pytest.raises(BotoCoreError):
            await ask(aws, authority, monkeypatch)
        assert aws.seen == []

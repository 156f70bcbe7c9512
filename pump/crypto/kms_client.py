"""A KMS client of aioboto3, made without holding up the event loop.

An SDK reads its service models, configuration and credentials from files when it makes a client.
So a client of boto3 is made first, in a thread, and thrown away; aioboto3's then finds everything
loaded. The gateways do the same for their own services.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from ..aiobotocore_gaps import CredentialProvider, check_hosts
from ..errors import ConfigurationError

_LIMITS = {
    "connect_timeout": 5.0,
    "read_timeout": 10.0,
    "retries": {"mode": "standard", "total_max_attempts": 3},
}


@asynccontextmanager
async def kms_client(
    *, region: str | None, endpoint_url: str | None, profile: str | None
) -> AsyncIterator[Any]:
    """`async with kms_client(…) as client`; credentials come from the SDK's own chain."""
    session, config = await asyncio.to_thread(_prepare, region, endpoint_url, profile)
    async with session.client("kms", endpoint_url=endpoint_url, config=config) as client:
        check_hosts(client)  # KMS hands out keys.
        yield client


def _prepare(region: str | None, endpoint_url: str | None, profile: str | None) -> tuple[Any, Any]:
    try:
        import aioboto3
        import boto3
        from aiobotocore.config import AioConfig
        from aiobotocore.session import AioSession
        from botocore.exceptions import BotoCoreError
    except ImportError as error:
        raise ConfigurationError(
            "KmsKeys", error.name, "is not installed; pip install pumphouse[crypto,sqs]"
        ) from error
    try:
        source = boto3.Session(region_name=region, profile_name=profile)
        found = source.get_credentials()
        if found is None or not source.region_name:
            missing = "credentials" if found is None else "region"
            raise ConfigurationError("KmsKeys", None, f"no AWS {missing} found; set them up")
        source.client("kms", endpoint_url=endpoint_url).close()
    except (BotoCoreError, ValueError) as error:
        raise ConfigurationError("KmsKeys", type(error).__name__, str(error)) from error
    core = AioSession(profile=profile)
    core.register_component("data_loader", source._session.get_component("data_loader"))
    core.register_component("credential_provider", CredentialProvider(source))
    _ = core.full_config  # reads the configuration files, once
    session = aioboto3.Session(botocore_session=core, region_name=source.region_name)
    return session, AioConfig(**_LIMITS)

"""A KMS client of aioboto3, made without holding up the event loop.

An SDK reads its service models, configuration and credentials from files when it makes a client.
So a client of boto3 is made first, in a thread, and thrown away; aioboto3's then finds everything
loaded. The gateways do the same for their own services.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

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
        _check_host(client)
        yield client


def _check_host(client: Any) -> None:
    """Have a certificate be for the host it comes from: KMS hands out keys.

    aiobotocore hands aiohttp a context of urllib3's, which leaves that check to urllib3. The
    gateways see to the same for their own clients; nothing of theirs may be imported here.
    """
    http = client._endpoint.http_session
    make = http._get_ssl_context

    def checked() -> Any:
        context = make()
        context.check_hostname = True
        return context

    http._get_ssl_context = checked


class _Credentials:
    """What boto3 found, for aioboto3; renewed in a thread when their time comes."""

    def __init__(self, found: Any) -> None:
        self._found = found
        self.method = found.method

    async def get_frozen_credentials(self) -> Any:
        is_due = getattr(self._found, "refresh_needed", None)
        if is_due is not None and is_due():
            return await asyncio.to_thread(self._found.get_frozen_credentials)
        return self._found.get_frozen_credentials()

    async def get_account_id(self) -> Any:
        return getattr(await self.get_frozen_credentials(), "account_id", None)

    def get_deferred_property(self, name: str) -> Callable[[], Awaitable[Any]]:
        getter: Callable[[], Awaitable[Any]] = getattr(self, f"get_{name}")
        return getter


class _CredentialProvider:
    """Stands where aiobotocore keeps its own chain of providers."""

    def __init__(self, found: Any) -> None:
        self._found = found

    async def load_credentials(self) -> _Credentials:
        return _Credentials(self._found)


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
    core.register_component("credential_provider", _CredentialProvider(found))
    _ = core.full_config  # reads the configuration files, once
    session = aioboto3.Session(botocore_session=core, region_name=source.region_name)
    return session, AioConfig(**_LIMITS)

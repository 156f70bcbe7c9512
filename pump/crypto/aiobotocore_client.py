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


# What aiobotocore lacks beside boto3, for all clients of it: here and in the gateways.
#
# It reads files and asks for credentials on the event loop, and its TLS checks no host. Nothing of
# AWS is imported here: what is passed in is.


class RenewedCredentials:
    """What boto3 found, for aioboto3; renewed in a thread when their time comes."""

    def __init__(self, found: Any) -> None:
        self._found = found
        self.method = found.method

    async def get_frozen_credentials(self) -> Any:
        """The keys as they are now."""
        is_due = getattr(self._found, "refresh_needed", None)
        if is_due is not None and is_due():
            return await asyncio.to_thread(self._found.get_frozen_credentials)
        return self._found.get_frozen_credentials()

    async def get_account_id(self) -> Any:
        """Whose they are, where that is known."""
        return getattr(await self.get_frozen_credentials(), "account_id", None)

    def get_deferred_property(self, name: str) -> Callable[[], Awaitable[Any]]:
        """Asks for one of the two when it is needed."""
        getter: Callable[[], Awaitable[Any]] = getattr(self, f"get_{name}")
        return getter


class CredentialProvider:
    """Stands where aiobotocore keeps its own chain of providers."""

    def __init__(self, session: Any) -> None:
        self._session = session

    async def load_credentials(self) -> RenewedCredentials:
        """Those of a session of boto3 which has found them before, in a thread, and remembers."""
        return RenewedCredentials(self._session.get_credentials())


def check_hosts(client: Any) -> None:
    """Have a certificate be for the host it comes from.

    aiobotocore makes urllib3's context, in which urllib3 leaves that check to itself, and hands it
    to aiohttp, which leaves it to the context: any trusted certificate would do.
    """
    http = client._endpoint.http_session
    make = http._get_ssl_context

    def checked() -> Any:
        context = make()
        context.check_hostname = True
        return context

    http._get_ssl_context = checked

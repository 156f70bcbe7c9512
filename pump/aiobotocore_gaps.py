"""What aiobotocore lacks beside boto3, for whoever makes a client of it: here and in the gateways.

It reads files and asks for credentials on the event loop, and its TLS checks no host. Nothing of
AWS is imported here: what is passed in is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any


class Credentials:
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

    async def load_credentials(self) -> Credentials:
        """Those of a session of boto3 which has found them before, in a thread, and remembers."""
        return Credentials(self._session.get_credentials())


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

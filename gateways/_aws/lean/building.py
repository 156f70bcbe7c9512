"""Building a lean service beside an SDK's client: what reads files apart from the rest."""

from __future__ import annotations

import attrs

from pump.clock import Clock

from ..._kit.versions import installed
from ..sdk_transport import Client
from ..settings import AwsSettings
from .http_session import HttpSession, ServiceLink, credentials_of, endpoint_of, link_of
from .json_protocol import JsonProtocol
from .s3 import RestS3
from .service import LeanService, RetryPolicy, WireProtocol
from .signing import CredentialSource


@attrs.frozen(kw_only=True)
class Blueprint:
    """A service that is ready to be built on the event loop."""

    sdk_client: Client
    protocol: WireProtocol
    link: ServiceLink
    max_attempts: int

    def session(self) -> HttpSession:
        """Its connections; the caller closes them."""
        return HttpSession(self.link)

    def service(self, session: HttpSession, clock: Clock) -> LeanService:
        """The service over these connections."""
        return LeanService(
            self.sdk_client,
            self.protocol,
            session,
            credentials=CredentialSource(credentials_of(self.sdk_client)),
            policy=RetryPolicy(self.max_attempts),
            clock=clock,
        )


def blueprint_of(service: str, sdk_client: Client, settings: AwsSettings) -> Blueprint | None:
    """What to build for a service; None for one that is the SDK's alone. Blocks."""
    protocol = _protocol_of(service, sdk_client)
    if protocol is None:
        return None
    return Blueprint(
        sdk_client=sdk_client,
        protocol=protocol,
        link=link_of(sdk_client, settings, _user_agent()),
        max_attempts=settings.max_attempts,
    )


def _protocol_of(service: str, sdk_client: Client) -> WireProtocol | None:
    if service == "s3":
        return RestS3(sdk_client)
    if service != "sqs":
        return None
    endpoint = endpoint_of(sdk_client, "ReceiveMessage", {})
    return None if endpoint is None else JsonProtocol(endpoint, sdk_client.meta.service_model)


def _user_agent() -> str:
    versions = (("lean", installed("pumphouse") or "0"), ("aiohttp", installed("aiohttp")))
    return " ".join([*(f"{name}/{version}" for name, version in versions), "pumphouse"])

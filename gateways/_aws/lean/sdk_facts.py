"""What a botocore client knows before it has sent anything: the only place that looks inside one.

Endpoints, partitions, signing regions, TLS, proxies and credentials are its craft and not written
again. It has no public way to ask for most of them: with a release that hides one, connecting
fails with `ConfigurationError`, and so does `tests/gateways/aws/lean/test_sdk_facts.py`.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import SplitResult, urlsplit

import attrs
import botocore
from botocore.httpsession import get_cert_path

from pump.errors import ConfigurationError

from ..sdk_transport import Client
from ..settings import AwsSettings
from .http_session import Link
from .signing import Signer

_SIGV4 = {"v4", "s3v4"}


@attrs.frozen(kw_only=True)
class Endpoint:
    """Where the requests of an operation go, and what they are signed for."""

    base: SplitResult
    signer: Signer

    @property
    def is_tls(self) -> bool:
        return self.base.scheme == "https"


def endpoint_of(client: Client, operation: str, params: Mapping[str, Any]) -> Endpoint | None:
    """What botocore's rules say of such a request; None where they ask for more than SigV4."""
    model = client.meta.service_model.operation_model(operation)
    context: dict[str, Any] = {
        "client_region": client.meta.region_name,
        "client_config": client.meta.config,
        "has_streaming_input": model.has_streaming_input,
        "auth_type": model.resolved_auth_type,
        "unsigned_payload": model.unsigned_payload,
        "auth_options": client.meta.service_model.metadata.get("auth"),
    }
    with _looking_inside():
        url, headers, _ = client._resolve_endpoint_ruleset(model, dict(params), context)
        usual = client._request_signer
    configured = client.meta.config.signature_version
    signature = context.get("auth_type") or configured
    if headers or signature not in _SIGV4 or configured not in _SIGV4:
        return None
    signing = context.get("signing") or {}
    signer = Signer(
        region=signing.get("region") or usual.region_name,
        service=signing.get("signing_name") or usual.signing_name,
    )
    return Endpoint(base=urlsplit(url), signer=signer)


def credentials_of(client: Client) -> Any:
    """The credentials it signs with, or an object that renews them."""
    with _looking_inside():
        return client._request_signer._credentials


def link_of(client: Client, settings: AwsSettings, user_agent: str) -> Link:
    """How it reaches its service. Reads the certificates: call it in a thread."""
    with _looking_inside():
        http = client._endpoint.http_session
        verify, proxies = http._verify, http._proxy_config
    proxy_url = proxies.proxy_url_for(client.meta.endpoint_url)
    return Link(
        max_connections=settings.max_connections,
        connect_timeout_s=settings.connect_timeout_s,
        read_timeout_s=settings.read_timeout_s,
        user_agent=user_agent,
        tls=_tls(verify),
        proxy_url=proxy_url,
        proxy_headers=proxies.proxy_headers_for(proxy_url) if proxy_url else {},
    )


def _tls(verify: bool | str | None) -> ssl.SSLContext | bool:
    if not verify:
        return False  # somebody has told botocore so
    # The default context also checks that the certificate is for this host.
    return ssl.create_default_context(cafile=get_cert_path(verify))


@contextmanager
def _looking_inside() -> Iterator[None]:
    try:
        yield
    except AttributeError as error:
        remedy = (
            "the lean transport does not know this version; use transport='aioboto3' or 'boto3'"
        )
        raise ConfigurationError("botocore", botocore.__version__, remedy) from error

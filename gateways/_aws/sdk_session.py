"""What both SDKs are told: one session and one client configuration, built the same way."""

from __future__ import annotations

import logging
import re
from importlib import metadata
from typing import Any

import msgspec

from pump.errors import ConfigurationError
from pump.secret import revealed

from .settings import AwsSettings, TransportKind

_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
# At DEBUG the SDKs log whole requests: bodies, signatures and session tokens.
_TALKATIVE = ("boto3", "botocore", "aioboto3", "aiobotocore", "urllib3", "s3transfer")


def make_session(settings: AwsSettings) -> Any:
    """A boto3 session with a region, the SDKs' versions checked. Blocks: call it in a thread."""
    check_versions(settings.transport)
    try:
        import boto3
        from botocore.exceptions import NoRegionError
    except ImportError as error:
        raise missing("boto3") from error
    _hush()
    given = settings.credentials
    session = boto3.Session(
        profile_name=settings.profile,
        region_name=settings.region,
        aws_access_key_id=given.access_key_id.reveal() if given else None,
        aws_secret_access_key=given.secret_access_key.reveal() if given else None,
        aws_session_token=revealed(given.session_token) if given else None,
    )
    if not session.region_name:
        raise NoRegionError
    return session


def make_client(session: Any, service: str, settings: AwsSettings) -> Any:
    """A boto3 client whose credentials are found. Blocks: call it in a thread."""
    from botocore.config import Config
    from botocore.exceptions import NoCredentialsError

    # A client without credentials can be made and fails at each call: better to say so once.
    if session.get_credentials() is None:
        raise NoCredentialsError
    config = Config(**config_options(settings))
    client = session.client(service, endpoint_url=settings.endpoint_url, config=config)
    watch_replies(client)
    return client


def config_options(settings: AwsSettings) -> dict[str, Any]:
    """The arguments of botocore's `Config` (and aiobotocore's, which extends it)."""
    package = settings.transport.value
    options: dict[str, Any] = {
        "retries": {"mode": "standard", "total_max_attempts": settings.max_attempts},
        "max_pool_connections": settings.max_connections,
        "connect_timeout": settings.connect_timeout_s,
        "read_timeout": settings.read_timeout_s,
        "tcp_keepalive": True,
        # The next two save a quarter to a half of an SDK's CPU time, measured on a batch of ten
        # (800–960 µs a call before, 490–610 µs after). Requests are built by our own code and
        # checked by AWS; and a user agent that is not given is put together twice a call.
        "parameter_validation": False,
        "user_agent": f"{package}/{installed(package)}",
        "user_agent_extra": "pumphouse",
    }
    if settings.endpoint_url:
        # Names of buckets are no names of hosts at LocalStack and its like.
        options["s3"] = {"addressing_style": "path"}
    return options


def watch_replies(client: Any) -> None:
    """Let a reply that is no JSON fail the call, where the SDK would read it as an empty one,
    and read the others here: the SDK walks through its model of them for every value.
    """
    if client.meta.service_model.service_name == "sqs":
        client.meta.events.register("before-parse.sqs", _read_reply)


def _read_reply(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: object
) -> None:
    body = response_dict["body"]
    if response_dict["status_code"] >= 300 or not body:
        return
    try:
        reply = _decode_object(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        from botocore.parsers import ResponseParserError

        raise ResponseParserError("the reply is not JSON; is a proxy in the way?") from None
    if b'"BinaryValue"' in body:
        return  # Bytes are told from text by the model alone.
    customized_response_dict.update(
        {name: value for name, value in reply.items() if value is not None}
    )
    response_dict["body"] = b"{}"


def _hush() -> None:
    """Keep an application's DEBUG level from the SDKs, unless it was set on them by name.

    Nor need they say at INFO, beside our own lines, where they found their credentials.
    """
    for name in _TALKATIVE:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)


# The oldest SDKs this works with, checked before anything is sent (R77).

MINIMUM = {"boto3": "1.35", "aioboto3": "13.2", "aiohttp": "3.14"}
"""The oldest versions: with them SQS speaks JSON and the SDKs know the standard retry mode; and
aiohttp can be kept from repeating a write by itself."""
PACKAGES = {
    TransportKind.BOTO3: ("boto3",),
    TransportKind.AIOBOTO3: ("boto3", "aioboto3"),
    TransportKind.LEAN: ("boto3", "aiohttp"),
}
"""What each transport stands on."""
INSTALL = "pip install 'pumphouse[sqs]'"


def check_versions(kind: TransportKind) -> None:
    """Raise `ConfigurationError`, naming the cure, when the SDK is missing or too old."""
    for package in PACKAGES[kind]:
        check_version(package, installed(package))


def installed(package: str) -> str | None:
    """The version that is installed, None when it is not; reads files."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def check_version(package: str, found: str | None) -> None:
    """Raise `ConfigurationError` when this version is missing or too old."""
    minimum = MINIMUM[package]
    if found is None:
        raise ConfigurationError(package, "not installed", f"run {INSTALL}")
    if _numbers(found) < _numbers(minimum):
        remedy = f"needs {package} >= {minimum}; run {INSTALL.replace('install', 'install -U')}"
        raise ConfigurationError(package, found, remedy)


def missing(package: str) -> ConfigurationError:
    """What to raise when an SDK cannot be imported."""
    return ConfigurationError(package, "not installed", f"run {INSTALL}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])

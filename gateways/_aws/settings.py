"""Settings of an AWS gateway: where AWS is, with which credentials, and how hard to try."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from urllib.parse import SplitResult, urlsplit

import attrs

from pump.errors import ConfigurationError
from pump.secret import Secret, optional_secret, secret

LONGEST_POLL_S = 20.0
"""The longest one receive waits at SQS."""
_HIDDEN = "…"


class TransportKind(StrEnum):
    """What performs the calls; nothing else differs between them."""

    BOTO3 = "boto3"
    """boto3, in a bounded pool of threads."""
    AIOBOTO3 = "aioboto3"
    """aioboto3, on the event loop (the default)."""
    LEAN = "lean"
    """Requests of our own for what is called often, boto3 for the rest: a fraction of the CPU."""


@attrs.frozen(kw_only=True, repr=False)
class Credentials:
    """A key pair given in code, as text; nothing of it reaches a repr, a log, an error or a
    serialisation (`pump.Secret`).
    """

    access_key_id: Secret = attrs.field(converter=secret)
    secret_access_key: Secret = attrs.field(converter=secret)
    session_token: Secret | None = attrs.field(default=None, converter=optional_secret)

    def __attrs_post_init__(self) -> None:
        for name in ("access_key_id", "secret_access_key"):
            value = getattr(self, name)
            if not isinstance(value, Secret) or not value.reveal().strip():
                raise ConfigurationError(
                    f"Credentials.{name}",
                    _HIDDEN,
                    "give both halves of the key, or leave credentials=None so that the SDK "
                    "finds them (environment, profile, role)",
                )
        if self.session_token is not None and not isinstance(self.session_token, Secret):
            raise ConfigurationError("Credentials.session_token", _HIDDEN, "use text, or None")

    def __repr__(self) -> str:
        return f"Credentials({_HIDDEN})"


def _kind(value: str) -> TransportKind:
    try:
        return TransportKind(value)
    except ValueError:
        choices = " or ".join(repr(kind.value) for kind in TransportKind)
        raise ConfigurationError("AwsSettings.transport", value, f"use {choices}") from None


@attrs.frozen(kw_only=True)
class AwsSettings:
    """How to reach AWS.

    What is not given comes from the SDK's own chain: environment, profile, role.
    """

    region: str | None = None
    endpoint_url: str | None = None
    """One endpoint for all services, as LocalStack and `pump local` offer."""
    profile: str | None = None
    credentials: Credentials | None = None
    transport: TransportKind = attrs.field(default=TransportKind.AIOBOTO3, converter=_kind)
    max_connections: int = 50
    """How many calls run at once; a quarter of them, but at least two, are never long polls."""
    max_attempts: int = 4
    """How often one call is tried, with jittered exponential backoff in between."""
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 30.0
    """How long a reply may take; longer than the longest long poll (20 s)."""
    pool_timeout_s: float = 30.0
    """How long a call waits for a free connection before it fails with `PoolExhausted`; a poll
    waits for its turn."""

    def __attrs_post_init__(self) -> None:
        _check_names(self)
        _check_endpoint(self.endpoint_url)
        _check_numbers(self)

    @property
    def long_poll_limit(self) -> int:
        """How many of the connections long polls may hold, so that acks always get through."""
        return self.max_connections - min(
            max(2, self.max_connections // 4), self.max_connections - 1
        )


def _check_names(settings: AwsSettings) -> None:
    for name in ("region", "profile"):
        value = getattr(settings, name)
        if value is not None and (not isinstance(value, str) or not value.strip()):
            raise ConfigurationError(
                f"AwsSettings.{name}", value, f"name the {name}, or leave it None for the SDK's own"
            )
    if settings.credentials is not None and not isinstance(settings.credentials, Credentials):
        raise ConfigurationError(
            "AwsSettings.credentials", _HIDDEN, "use Credentials(access_key_id=…, …), or None"
        )
    if settings.credentials is not None and settings.profile is not None:
        raise ConfigurationError(
            "AwsSettings.profile", settings.profile, "give a profile or credentials, not both"
        )


def _check_endpoint(url: str | None) -> None:
    if url is None:
        return
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except (ValueError, AttributeError):
        raise ConfigurationError("AwsSettings.endpoint_url", url, _ENDPOINT_REMEDY) from None
    if parts.username is not None or parts.password is not None:
        raise ConfigurationError(
            "AwsSettings.endpoint_url",
            f"{parts.scheme}://{_HIDDEN}@{parts.hostname}",
            "a URL is no place for a password; AWS takes signed requests (credentials=…)",
        )
    if not is_whole:
        raise ConfigurationError("AwsSettings.endpoint_url", url, _ENDPOINT_REMEDY)


_ENDPOINT_REMEDY = "use a whole URL, such as 'http://127.0.0.1:4566', or None for AWS itself"


def _check_numbers(settings: AwsSettings) -> None:
    # One connection could be held by a long poll for 20 s while an ack waits.
    _check_whole(settings, "max_connections", 2, 1_000)
    _check_whole(settings, "max_attempts", 1, 20)
    for name in ("connect_timeout_s", "pool_timeout_s", "read_timeout_s"):
        value = getattr(settings, name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 < value < float("inf"):
            raise ConfigurationError(f"AwsSettings.{name}", value, "use a number of seconds over 0")
    if settings.read_timeout_s <= LONGEST_POLL_S:
        raise ConfigurationError(
            "AwsSettings.read_timeout_s",
            settings.read_timeout_s,
            f"use more than the {LONGEST_POLL_S:g} s that a long poll takes",
        )


def _check_whole(settings: AwsSettings, name: str, least: int, most: int) -> None:
    value = getattr(settings, name)
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or not least <= value <= most:
        raise ConfigurationError(
            f"AwsSettings.{name}", value, f"use a whole number from {least} to {most}"
        )


def aws_url_parts(
    url: str, shown: str, form: str, *, fits: Callable[[SplitResult], object]
) -> SplitResult:
    """The parts of a gateway's URL. `ConfigurationError`, which calls it `shown` and names the form
    to use, for one that does not fit, and for one with credentials in it: a URL ends up in logs.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ConfigurationError("gateway", shown, f"use {form}") from None
    if not fits(parts):
        raise ConfigurationError("gateway", shown, f"use {form}")
    if "@" in parts.netloc:
        raise ConfigurationError(
            "gateway",
            shown,
            "keep credentials out of the URL: use the environment, a profile, or a role",
        )
    return parts

"""Settings of the SQS gateway, from arguments or from a URL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import attrs

from pump.errors import ConfigurationError
from pump.gateway_url import without_secrets

from .._aws.settings import AwsSettings, TransportKind
from .claims import ClaimCheck

_FORM = "sqs://REGION?transport=aioboto3&endpoint=http://…&profile=…"


@attrs.frozen(kw_only=True)
class SqsSettings:
    """How the gateway reaches SQS, and what it does beside sending and receiving."""

    aws: AwsSettings = AwsSettings()
    owner: str | None = None
    """The account that owns the queues, when it is not the credentials' own."""
    prefix: str = ""
    """Only queues whose name starts with it are listed."""
    claim_check: ClaimCheck | None = None
    """Where bodies go that are too large for SQS; None refuses them."""
    silence_s: float = 30.0
    """How long a poll may stay unanswered beyond its own waiting, before it is given up."""

    def __attrs_post_init__(self) -> None:
        if self.owner is not None and not (self.owner.isdigit() and len(self.owner) == 12):
            raise ConfigurationError("SqsSettings.owner", self.owner, "use a 12-digit account id")
        if self.silence_s <= 0:
            raise ConfigurationError("SqsSettings.silence_s", self.silence_s, "use more than zero")

    @classmethod
    def from_url(cls, url: str) -> SqsSettings:
        """`sqs://eu-west-1?transport=boto3`; every key of the query is optional.

        Credentials come from the environment, a profile or a role; a URL ends up in logs.
        """
        parts = urlsplit(url)
        shown = without_secrets(url)
        if parts.scheme != "sqs" or parts.path.strip("/"):
            raise ConfigurationError("gateway", shown, f"use {_FORM}")
        if "@" in parts.netloc:
            raise ConfigurationError(
                "gateway",
                shown,
                "keep credentials out of the URL: use the environment, a profile, or a role",
            )
        return _from_query(parts.netloc or None, _query(parts.query, shown), shown)


def _query(query: str, shown: str) -> dict[str, str]:
    values = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(set(values) - set(_CONVERTERS))
    if unknown:
        raise ConfigurationError(
            "gateway", shown, f"unknown {', '.join(unknown)}; known: {', '.join(_CONVERTERS)}"
        )
    return values


def _whole(text: str) -> int:
    if not text.isdigit():
        raise ValueError("use a whole number")
    return int(text)


def _transport(text: str) -> TransportKind:
    if text not in list(TransportKind):
        raise ValueError(f"use {' or '.join(TransportKind)}")
    return TransportKind(text)


_CONVERTERS: Mapping[str, Callable[[str], Any]] = {
    "endpoint": str,
    "profile": str,
    "transport": _transport,
    "max_connections": _whole,
    "max_attempts": _whole,
    "owner": str,
    "prefix": str,
    "claim_bucket": str,
    "claim_prefix": str,
    "claim_threshold": _whole,
}


def _from_query(region: str | None, query: Mapping[str, str], shown: str) -> SqsSettings:
    values = {key: _converted(key, text, shown) for key, text in query.items()}
    aws = AwsSettings(
        region=region,
        endpoint_url=values.get("endpoint"),
        **{
            key: values[key]
            for key in ("profile", "transport", "max_connections", "max_attempts")
            if key in values
        },
    )
    claim = {
        field: values[key]
        for field, key in (
            ("bucket", "claim_bucket"),
            ("prefix", "claim_prefix"),
            ("threshold_bytes", "claim_threshold"),
        )
        if key in values
    }
    if claim and "bucket" not in claim:
        raise ConfigurationError(
            "gateway", shown, "claim_prefix and claim_threshold need a claim_bucket"
        )
    return SqsSettings(
        aws=aws,
        owner=values.get("owner"),
        prefix=values.get("prefix", ""),
        claim_check=ClaimCheck(**claim) if claim else None,
    )


def _converted(key: str, text: str, shown: str) -> Any:
    try:
        return _CONVERTERS[key](text)
    except ValueError as error:
        raise ConfigurationError("gateway", shown, f"{key}={text!r}: {error}") from None

"""Settings of the SQS gateway, from arguments or from a URL."""

from __future__ import annotations

import attrs

from pump.errors import ConfigurationError
from pump.gateway_url import without_secrets
from pump.url_options import url_options

from .._aws.settings import AwsSettings, aws_url_parts
from .claims import ClaimCheck

_FORM = "sqs://REGION?transport=aioboto3&endpoint=http://…&profile=…"
_OPTIONS = {
    "endpoint": "aws.endpoint_url",
    "profile": "aws.profile",
    "transport": "aws.transport",
    "max_connections": "aws.max_connections",
    "max_attempts": "aws.max_attempts",
    "owner": "owner",
    "prefix": "prefix",
    "claim_bucket": "claim_check.bucket",
    "claim_prefix": "claim_check.prefix",
    "claim_threshold": "claim_check.threshold_bytes",
}
"""The field that each option of a URL sets."""


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
        shown = without_secrets(url)
        parts = aws_url_parts(
            url, shown, _FORM, fits=lambda it: it.scheme == "sqs" and not it.path.strip("/")
        )
        fields = url_options(parts.query, shown, cls, _OPTIONS)
        aws = AwsSettings(region=parts.netloc or None, **fields.pop("aws", {}))
        claim = fields.pop("claim_check", None)
        if claim is not None and "bucket" not in claim:
            raise ConfigurationError(
                "gateway", shown, "claim_prefix and claim_threshold need a claim_bucket"
            )
        return cls(aws=aws, claim_check=None if claim is None else ClaimCheck(**claim), **fields)

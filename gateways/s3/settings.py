"""Settings of the S3 gateway, from arguments or from a URL."""

from __future__ import annotations

from urllib.parse import unquote

import attrs

from pump.errors import ConfigurationError
from pump.gateway_url import without_secrets
from pump.url_options import url_options

from .._aws.settings import AwsSettings, aws_url_parts
from .layout import Layout, S3QueueSettings

_FORM = "s3://BUCKET/PREFIX?region=…&layout=leases&endpoint=http://…"
MAX_CONNECTIONS = 128
"""Claims, acks and renewals are requests of their own: more run at once than on other brokers."""
MAX_PREFIX_BYTES = 300
"""A key has 1,024 bytes, and the names of queues want some."""
_OPTIONS = {
    "region": "aws.region",
    "endpoint": "aws.endpoint_url",
    "profile": "aws.profile",
    "transport": "aws.transport",
    "layout": "layout",
    "poll": "queue.poll_s",
    "probe": "probe",
    "max_connections": "aws.max_connections",
    "max_attempts": "aws.max_attempts",
}
"""The field that each option of a URL sets."""


def _layout(value: str) -> Layout:
    try:
        return Layout(value)
    except ValueError:
        names = " or ".join(repr(layout.value) for layout in Layout)
        raise ConfigurationError("S3Settings.layout", value, f"use {names}") from None


@attrs.frozen(kw_only=True)
class S3Settings:
    """Which bucket, how it is reached, and how queues are kept in it."""

    bucket: str
    prefix: str = ""
    """Below which the queues are; several gateways can share a bucket by it."""
    aws: AwsSettings = AwsSettings(max_connections=MAX_CONNECTIONS)
    layout: Layout = attrs.field(default=Layout.LEASES, converter=_layout)
    """Of queues that are made and do not say (`QueueSpec.options["layout"]`)."""
    queue: S3QueueSettings = S3QueueSettings()
    probe: bool = True
    """Whether opening tries out that the store honours conditions: seven requests."""
    patience_s: float = 20.0
    """How long one request may take, with the SDK's repetitions; longer than that, its
    outcome is unknown."""

    def __attrs_post_init__(self) -> None:
        _check_bucket(self.bucket)
        _check_prefix(self.prefix)
        if not isinstance(self.probe, bool):
            raise ConfigurationError("S3Settings.probe", self.probe, "use True or False")
        _check_seconds("S3Settings.patience_s", self.patience_s)
        _check_seconds("S3Settings.queue.poll_s", self.queue.poll_s)
        _check_seconds("S3Settings.queue.look_again_s", self.queue.look_again_s)
        _check_linger(self.queue.linger_s, self.patience_s)
        if self.queue.cache_bytes < 0:
            raise ConfigurationError(
                "S3Settings.queue.cache_bytes", self.queue.cache_bytes, "use 0 or more"
            )

    @property
    def root(self) -> str:
        """What every key begins with: nothing, or the prefix and a slash."""
        return f"{self.prefix.rstrip('/')}/" if self.prefix else ""

    @classmethod
    def from_url(cls, url: str) -> S3Settings:
        """`s3://bucket/prefix?region=eu-west-1&layout=log`; every key of the query is optional.

        Credentials come from the environment, a profile or a role; a URL ends up in logs.
        """
        shown = without_secrets(url)
        parts = aws_url_parts(
            url,
            shown,
            _FORM,
            fits=lambda it: it.scheme == "s3" and it.netloc and not it.fragment,
        )
        fields = url_options(parts.query, shown, cls, _OPTIONS)
        aws = {"max_connections": MAX_CONNECTIONS, **fields.pop("aws", {})}
        return cls(
            bucket=parts.netloc,
            prefix=unquote(parts.path).strip("/"),
            aws=AwsSettings(**aws),
            queue=S3QueueSettings(**fields.pop("queue", {})),
            **fields,
        )


def _check_bucket(bucket: object) -> None:
    if not isinstance(bucket, str) or not bucket.strip() or "/" in bucket:
        raise ConfigurationError("S3Settings.bucket", bucket, "name the bucket")


def _check_prefix(prefix: object) -> None:
    remedy = "use names with slashes between them, such as 'production/queues', or nothing"
    if not isinstance(prefix, str):
        raise ConfigurationError("S3Settings.prefix", prefix, remedy)
    parts = prefix.removesuffix("/").split("/")
    # HTTP clients resolve dots, and the SDK signs what was there before.
    if prefix and any(part in ("", ".", "..") for part in parts):
        raise ConfigurationError("S3Settings.prefix", prefix, remedy)
    if len(prefix.encode()) > MAX_PREFIX_BYTES:
        raise ConfigurationError(
            "S3Settings.prefix", prefix, f"use at most {MAX_PREFIX_BYTES} bytes"
        )


def _check_seconds(field: str, value: object) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < value < float("inf"):  # type: ignore[operator]
        raise ConfigurationError(field, value, "use a number of seconds over 0")


def _check_linger(linger_s: object, patience_s: float) -> None:
    _check_seconds("S3Settings.queue.linger_s", linger_s)
    if not linger_s > patience_s:  # type: ignore[operator]
        raise ConfigurationError(
            "S3Settings.queue.linger_s",
            linger_s,
            f"use more than patience_s ({patience_s:g} s): a write that was given up may come late",
        )

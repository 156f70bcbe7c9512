"""Settings of the S3 gateway, from arguments or from a URL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import attrs

from pump.errors import ConfigurationError
from pump.gateway_url import without_secrets

from .._aws.settings import AwsSettings, TransportKind
from .layout import Layout, S3QueueSettings

_FORM = "s3://BUCKET/PREFIX?region=…&layout=leases&endpoint=http://…"
MAX_CONNECTIONS = 128
"""Claims, acks and renewals are requests of their own: more run at once than on other brokers."""
MAX_PREFIX_BYTES = 300
"""A key has 1,024 bytes, and the names of queues want some."""


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
        parts = urlsplit(url)
        shown = without_secrets(url)
        if parts.scheme != "s3" or not parts.netloc or parts.fragment:
            raise ConfigurationError("gateway", shown, f"use {_FORM}")
        if "@" in parts.netloc:
            raise ConfigurationError(
                "gateway",
                shown,
                "keep credentials out of the URL: use the environment, a profile, or a role",
            )
        values = _values(parts.query, shown)
        return _from_values(parts.netloc, unquote(parts.path).strip("/"), values)


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


def _values(query: str, shown: str) -> dict[str, Any]:
    texts = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(set(texts) - set(_CONVERTERS))
    if unknown:
        raise ConfigurationError(
            "gateway", shown, f"unknown {', '.join(unknown)}; known: {', '.join(_CONVERTERS)}"
        )
    return {key: _converted(key, text, shown) for key, text in texts.items()}


def _converted(key: str, text: str, shown: str) -> Any:
    try:
        return _CONVERTERS[key](text)
    except ValueError as error:
        raise ConfigurationError("gateway", shown, f"{key}={text!r}: {error}") from None


def _whole(text: str) -> int:
    if not text.isdigit():
        raise ValueError("use a whole number")
    return int(text)


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("use a number of seconds") from None


def _choice(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("use true or false")
    return text == "true"


def _transport(text: str) -> TransportKind:
    if text not in list(TransportKind):
        raise ValueError(f"use {' or '.join(TransportKind)}")
    return TransportKind(text)


def _layout_named(text: str) -> Layout:
    if text not in list(Layout):
        raise ValueError(f"use {' or '.join(Layout)}")
    return Layout(text)


_CONVERTERS: Mapping[str, Callable[[str], Any]] = {
    "region": str,
    "endpoint": str,
    "profile": str,
    "transport": _transport,
    "layout": _layout_named,
    "poll": _seconds,
    "probe": _choice,
    "max_connections": _whole,
    "max_attempts": _whole,
}
_AWS = ("region", "profile", "transport", "max_connections", "max_attempts")
_OWN = ("layout", "probe")


def _from_values(bucket: str, prefix: str, values: Mapping[str, Any]) -> S3Settings:
    aws = {"max_connections": MAX_CONNECTIONS, **_chosen(values, _AWS)}
    queue = S3QueueSettings(poll_s=values["poll"]) if "poll" in values else S3QueueSettings()
    return S3Settings(
        bucket=bucket,
        prefix=prefix,
        aws=AwsSettings(endpoint_url=values.get("endpoint"), **aws),
        queue=queue,
        **_chosen(values, _OWN),
    )


def _chosen(values: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: values[key] for key in keys if key in values}

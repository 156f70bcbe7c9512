"""Settings of the RabbitMQ gateway, from arguments or from a URL."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

import attrs

from pump.errors import ConfigurationError
from pump.gateway_url import without_secrets
from pump.secret import Secret, secret
from pump.url_options import url_options

_FORM = "amqp://user:password@host:5672/vhost?heartbeat=10, or amqps://… for TLS"
_PORTS = {"amqp": 5672, "amqps": 5671}
_OPTIONS = {
    "heartbeat": "heartbeat_s",
    "name": "name",
    "connect_timeout": "connect_timeout_s",
    "confirm_timeout": "confirm_timeout_s",
    "consumer_timeout": "consumer_timeout_s",
    "max_body_bytes": "max_body_bytes",
    "ca_file": "ca_file",
    "cert_file": "cert_file",
    "key_file": "key_file",
}
"""The field that each option of a URL sets."""


def _above_zero(instance: object, attribute: attrs.Attribute[Any], value: float) -> None:
    if not value > 0:
        raise ConfigurationError(f"RabbitMQSettings.{attribute.name}", value, "use more than zero")


def _not_empty(instance: object, attribute: attrs.Attribute[Any], value: str) -> None:
    if not value:
        raise ConfigurationError(f"RabbitMQSettings.{attribute.name}", value, "must not be empty")


@attrs.frozen(kw_only=True)
class RabbitMQSettings:
    """Where the broker is, who we are there, and what of its own settings we must know."""

    host: str = attrs.field(default="localhost", validator=_not_empty)
    port: int = attrs.field(default=5672)
    vhost: str = attrs.field(default="/", validator=_not_empty)
    user: str = "guest"
    # The converter makes a secret of the default too, which mypy does not see.
    password: Secret = attrs.field(default="guest", converter=secret, repr=False)  # type: ignore[assignment]
    """Given as text; shown and serialised nowhere (`pump.Secret`)."""
    is_tls: bool = False
    ca_file: str | None = None
    """The authority that vouches for the broker; the system's own by default."""
    cert_file: str | None = None
    key_file: str | None = None
    name: str = "pumphouse"
    """What the broker's own pages call the connection."""
    heartbeat_s: int = attrs.field(default=10, validator=_above_zero)
    """A peer that is silent for about three times as long is taken for dead, by both sides."""
    connect_timeout_s: float = attrs.field(default=10.0, validator=_above_zero)
    confirm_timeout_s: float = attrs.field(default=30.0, validator=_above_zero)
    """How long a publish waits to be confirmed before the broker is taken to be throttling."""
    consumer_timeout_s: float = attrs.field(default=1800.0, validator=_above_zero)
    """The broker's `consumer_timeout`: it closes a channel that keeps a delivery longer,
    so no lease is extended to within a minute and a half of it."""
    max_body_bytes: int = attrs.field(default=16 * 1024 * 1024, validator=_above_zero)
    """The broker's `max_message_size`; 16 MiB is the default of RabbitMQ 4."""

    def __attrs_post_init__(self) -> None:
        if not 0 < self.port < 65_536:
            raise ConfigurationError("RabbitMQSettings.port", self.port, "use 1 to 65535")
        if not isinstance(self.password, Secret):
            raise ConfigurationError("RabbitMQSettings.password", "…", "use text")
        if (self.cert_file is None) != (self.key_file is None):
            raise ConfigurationError(
                "RabbitMQSettings.cert_file", self.cert_file, "give cert_file and key_file, or none"
            )

    @property
    def address(self) -> str:
        """Where it is, without a secret: for logs and errors."""
        scheme = "amqps" if self.is_tls else "amqp"
        return f"{scheme}://{self.host}:{self.port}/{'' if self.vhost == '/' else self.vhost}"

    @classmethod
    def from_url(cls, url: str) -> RabbitMQSettings:
        """`amqp://user:password@host:5672/vhost?heartbeat=10`; every part but the host is optional.

        A vhost whose name has a slash is written with %2F.
        """
        shown = without_secrets(url)
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise ConfigurationError("gateway", shown, f"use {_FORM}") from None
        if parts.scheme not in _PORTS or "/" in parts.path[1:]:
            raise ConfigurationError("gateway", shown, f"use {_FORM}")
        login = parts.netloc.rpartition("@")[0]
        if "," in (host or "") or ("@" in login and "," in login):
            remedy = "name one host; write @ and , in a password as %40 and %2C"
            raise ConfigurationError("gateway", shown, remedy)
        fields = url_options(parts.query, shown, cls, _OPTIONS)
        if parts.username is not None:
            fields["user"] = unquote(parts.username)
        if parts.password is not None:
            fields["password"] = unquote(parts.password)
        return cls(
            host=host or "localhost",
            port=port or _PORTS[parts.scheme],
            vhost=unquote(parts.path[1:]) or "/",
            is_tls=parts.scheme == "amqps",
            **fields,
        )

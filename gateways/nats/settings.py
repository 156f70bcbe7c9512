"""Settings of the NATS gateway, from arguments or from a URL."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any
from urllib.parse import unquote, urlsplit

import attrs

from pump.errors import ConfigurationError
from pump.gateway_url import without_secrets
from pump.secret import Secret, optional_secret
from pump.url_options import login_and_hosts, url_options

_FORM = "nats://[user:password@]host:4222[,host2]?tls=true&creds=/path/to/user.creds"
DEFAULT_PORT = 4222
_OPTIONS = {
    "creds": "credentials_file",
    "token": "token",
    "tls": "tls",
    "tls_ca": "tls_ca_file",
    "tls_cert": "tls_cert_file",
    "tls_key": "tls_key_file",
    "domain": "domain",
    "replicas": "replicas",
    "connect_timeout": "connect_timeout_s",
    "request_timeout": "request_timeout_s",
}
"""The field that each option of a URL sets."""


def _as_tuple(hosts: Iterable[str]) -> tuple[str, ...]:
    # One host as text is a mistake, which the check would find one letter at a time.
    return (hosts,) if isinstance(hosts, str) else tuple(hosts)


def _is_place(text: str) -> bool:
    host, _, port = text.rpartition(":")
    is_number = port.isascii() and port.isdecimal() and len(port) <= 5
    return bool(host) and is_number and 0 < int(port) < 65_536


@attrs.frozen(kw_only=True)
class NatsSettings:
    """How the gateway reaches a NATS server or cluster. Password and token are given as text, and
    shown and serialised nowhere (`pump.Secret`).
    """

    hosts: tuple[str, ...] = attrs.field(
        default=(f"localhost:{DEFAULT_PORT}",), converter=_as_tuple
    )
    """`host:port` of each server; one that answers is enough, it names the others."""
    user: str | None = None
    password: Secret | None = attrs.field(default=None, converter=optional_secret, repr=False)
    token: Secret | None = attrs.field(default=None, converter=optional_secret, repr=False)
    credentials_file: str | None = None
    """A `.creds` file with a JWT and its key; needs the package `nkeys`."""
    tls: bool = False
    """Refuse to speak without TLS; a server that requires it is met with TLS anyway."""
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    domain: str | None = None
    """The JetStream domain, where the account has several."""
    replicas: int = 1
    """On how many servers of a cluster a new queue is kept."""
    connect_timeout_s: float = 5.0
    request_timeout_s: float = 5.0
    """How long the server may leave a request unanswered."""

    def __attrs_post_init__(self) -> None:
        if not self.hosts or not all(map(_is_place, self.hosts)):
            raise ConfigurationError(
                "NatsSettings.hosts", self.hosts, 'name servers as ("host:4222",)'
            )
        for field in ("connect_timeout_s", "request_timeout_s"):
            # Put so that NaN fails as well.
            if not 0 < (value := getattr(self, field)) < inf:
                raise ConfigurationError(f"NatsSettings.{field}", value, "use more than zero")
        if self.replicas not in range(1, 6):
            raise ConfigurationError("NatsSettings.replicas", self.replicas, "use 1 to 5")
        self._check_login()
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ConfigurationError(
                "NatsSettings.tls_cert_file", self.tls_cert_file, "give certificate and key"
            )

    def _check_login(self) -> None:
        for field in ("password", "token"):
            if not isinstance(getattr(self, field), Secret | None):
                raise ConfigurationError(f"NatsSettings.{field}", "…", "use text, or None")
        if self.password is not None and self.user is None:
            raise ConfigurationError("NatsSettings.user", None, "a password needs a user")
        given = [self.user, self.token, self.credentials_file]
        if sum(each is not None for each in given) > 1:
            raise ConfigurationError(
                "NatsSettings.user", self.user, "use one of user, token and credentials_file"
            )

    @property
    def target(self) -> str:
        """What errors call the server: no secrets in it."""
        return f"nats://{','.join(self.hosts)}"

    @property
    def has_tls(self) -> bool:
        """Whether TLS was asked for, in whatever words."""
        return self.tls or self.tls_ca_file is not None or self.tls_cert_file is not None

    @property
    def api_prefix(self) -> str:
        """What the subjects of JetStream's API begin with."""
        return f"$JS.{self.domain}.API" if self.domain else "$JS.API"

    @classmethod
    def from_url(cls, url: str) -> NatsSettings:
        """`nats://user:password@host:4222,host2?tls=true`; a user alone is a token. Other clients
        repeat the login for each host: that is read, too, if it is the same.
        """
        shown = without_secrets(url)
        try:
            parts = urlsplit(url)
        except ValueError:
            raise ConfigurationError("gateway", shown, f"use {_FORM}") from None
        if parts.scheme != "nats" or parts.path.strip("/"):
            raise ConfigurationError("gateway", shown, f"use {_FORM}")
        login, hosts = login_and_hosts(parts.netloc, shown)
        values = {**_login(login), **url_options(parts.query, shown, cls, _OPTIONS)}
        if hosts:
            values["hosts"] = tuple(_host(host, shown) for host in hosts.split(","))
        return cls(**values)


def _login(login: str) -> dict[str, Any]:
    if not login:
        return {}
    user, colon, password = login.partition(":")
    if not colon:
        return {"token": unquote(user)}
    return {"user": unquote(user), "password": unquote(password)}


def _host(text: str, shown: str) -> str:
    place = text if ":" in text and not text.endswith("]") else f"{text}:{DEFAULT_PORT}"
    if not _is_place(place):
        raise ConfigurationError("gateway", shown, f"{text!r} is no host:port; use {_FORM}")
    return place

"""Settings of the Postgres gateway, from arguments or from a URL."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from math import inf
from typing import Any
from urllib.parse import unquote, urlsplit

import attrs

from ..errors import ConfigurationError
from ..gateway_url import without_secrets
from ..secret import Secret, optional_secret
from ..url_options import login_and_hosts, url_options

_FORM = "postgres://[user:password@]host:5432[,host2]/database?schema=pumphouse"
DEFAULT_PORT = 5432
_SCHEMES = ("postgres", "postgresql")
_OPTIONS = {
    "schema": "schema",
    "host": "socket_folder",
    "max_connections": "max_connections",
    "listen": "listen",
    "poll": "poll_s",
    "sslmode": "ssl_mode",
    "sslrootcert": "ssl_root_cert_file",
    "sslcert": "ssl_cert_file",
    "sslkey": "ssl_key_file",
    "application_name": "application_name",
    "connect_timeout": "connect_timeout_s",
    "request_timeout": "request_timeout_s",
}
"""The field that each option of a URL sets."""
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")


class Listen(StrEnum):
    """How a waiting receive learns of messages."""

    AUTO = "auto"
    """By NOTIFY where the connection is direct, by polling behind a pooler (the default)."""
    ON = "on"
    """By NOTIFY, also through a pooler: one in session mode."""
    OFF = "off"
    """By polling."""


def _as_tuple(hosts: Iterable[str]) -> tuple[str, ...]:
    return (hosts,) if isinstance(hosts, str) else tuple(hosts)


@attrs.frozen(kw_only=True)
class PostgresSettings:
    """How the gateway reaches a database, and where in it the queues are. The password is given as
    text, and shown and serialised nowhere (`pump.Secret`).

    What is not set here comes from libpq's own sources: `PGPASSFILE`, a service file, defaults.
    """

    hosts: tuple[str, ...] = attrs.field(default=("localhost",), converter=_as_tuple)
    """`host` or `host:port` of each server; of several the first that takes writes is used."""
    socket_folder: str | None = None
    """The folder of the server's Unix socket, instead of a host."""
    database: str = "postgres"
    user: str | None = None
    password: Secret | None = attrs.field(default=None, converter=optional_secret, repr=False)
    schema: str = "pumphouse"
    """The schema of the queues: each is a world of its own."""
    max_connections: int = 6
    """The most connections at once, besides the one that listens."""
    listen: Listen = attrs.field(default=Listen.AUTO, converter=Listen)
    poll_s: float | None = None
    """How often the receives that wait, all of a queue together, look for what they were not told
    of: 5 seconds by default, half a second where they are told nothing."""
    ssl_mode: str | None = None
    ssl_root_cert_file: str | None = None
    ssl_cert_file: str | None = None
    ssl_key_file: str | None = None
    application_name: str = "pumphouse"
    """What the server's views call our connections."""
    connect_timeout_s: float = 10.0
    request_timeout_s: float = 30.0
    """How long the server may leave a statement unanswered."""

    def __attrs_post_init__(self) -> None:
        if not self.hosts or not all(map(_is_place, self.hosts)):
            raise ConfigurationError("PostgresSettings.hosts", self.hosts, 'use ("host:5432",)')
        if not _SCHEMA.fullmatch(self.schema):
            raise ConfigurationError(
                "PostgresSettings.schema", self.schema, "use lower case letters, digits and _"
            )
        if self.max_connections < 1:
            raise ConfigurationError(
                "PostgresSettings.max_connections", self.max_connections, "use 1 or more"
            )
        for field in ("connect_timeout_s", "request_timeout_s", "poll_s"):
            value = getattr(self, field)
            # Put so that NaN fails as well.
            if value is not None and not 0 < value < inf:
                raise ConfigurationError(f"PostgresSettings.{field}", value, "use seconds above 0")

    @property
    def target(self) -> str:
        """What errors call the database: no secrets in it."""
        return f"postgres://{self.socket_folder or ','.join(self.hosts)}/{self.database}"

    @property
    def connection(self) -> dict[str, Any]:
        """What libpq is told, the password too."""
        places = [_place(host) for host in self.hosts]
        given: dict[str, Any] = {
            "host": self.socket_folder or ",".join(host for host, _ in places),
            "port": ",".join(str(port) for _, port in places),
            "dbname": self.database,
            "user": self.user,
            "password": None if self.password is None else self.password.reveal(),
            "sslmode": self.ssl_mode,
            "sslrootcert": self.ssl_root_cert_file,
            "sslcert": self.ssl_cert_file,
            "sslkey": self.ssl_key_file,
            "application_name": self.application_name,
            "client_encoding": "utf8",
            "target_session_attrs": "read-write" if len(self.hosts) > 1 else None,
            # A server that is gone without a word is noticed within half a minute.
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
        }
        return {name: value for name, value in given.items() if value is not None}

    @classmethod
    def from_url(cls, url: str) -> PostgresSettings:
        """`postgres://user:password@host:5432/database?schema=pumphouse`."""
        shown = without_secrets(url)
        try:
            parts = urlsplit(url)
        except ValueError:
            raise ConfigurationError("gateway", shown, f"use {_FORM}") from None
        database = unquote(parts.path.removeprefix("/"))
        if parts.scheme not in _SCHEMES or "/" in database:
            raise ConfigurationError("gateway", shown, f"use {_FORM}")
        values = url_options(parts.query, shown, cls, _OPTIONS)
        login, hosts = login_and_hosts(parts.netloc, shown)
        user, colon, password = login.partition(":")
        if login:
            values["user"] = unquote(user)
        if colon:
            values["password"] = unquote(password)
        if hosts:
            values["hosts"] = tuple(hosts.split(","))
        if not all(map(_is_place, values.get("hosts", ("localhost",)))):
            raise ConfigurationError("gateway", shown, f"use {_FORM}")
        if database:
            values["database"] = database
        return cls(**values)


def _is_place(text: str) -> bool:
    host, port = _split(text)
    is_number = port.isascii() and port.isdecimal() and len(port) <= 5
    return bool(host) and (not port or (is_number and 0 < int(port) < 65_536))


def _place(text: str) -> tuple[str, int]:
    host, port = _split(text)
    return host.strip("[]"), int(port) if port else DEFAULT_PORT


def _split(text: str) -> tuple[str, str]:
    if ":" not in text or text.endswith("]"):
        return text, ""
    host, _, port = text.rpartition(":")
    return host, port or "-"

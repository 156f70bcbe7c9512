"""Settings of the Service Bus gateway, from arguments, a connection string or a URL."""

from __future__ import annotations

import re
from math import inf
from typing import Any
from urllib.parse import unquote, urlsplit

import attrs

from pump.errors import ConfigurationError
from pump.gateway_url import without_secrets
from pump.secret import Secret, optional_secret, revealed
from pump.url_options import url_options

_FORM = "sb://[key_name:key@]namespace.servicebus.windows.net"
_USE = f"use {_FORM}, with %XX for what is not a letter or a digit in a key"
AMQP_PORT = 5671
WEBSOCKET_PORT = 443
EMULATOR_PORT = 5672
EMULATOR_ADMIN_PORT = 5300
_OPTIONS = {
    "websocket": "is_websocket",
    "emulator": "is_emulator",
    "admin_port": "admin_port",
    "max_message_bytes": "max_message_bytes",
    "request_timeout": "request_timeout_s",
    "look": "look_s",
}
"""The field that each option of a URL sets."""


@attrs.frozen(kw_only=True)
class ServiceBusSettings:
    """How the gateway reaches a namespace. The key is given as text, and shown and serialised
    nowhere (`pump.Secret`).
    """

    namespace: str
    """`name.servicebus.windows.net`; for an emulator its host."""
    key_name: str | None = None
    """Of a shared access policy. Without one, azure-identity's `DefaultAzureCredential` logs in."""
    key: Secret | None = attrs.field(default=None, converter=optional_secret, repr=False)
    is_websocket: bool = False
    """Speak through port 443, where a firewall lets nothing else out."""
    is_emulator: bool = False
    """A development emulator on this machine: without TLS."""
    port: int | None = None
    """Of an emulator; a namespace always listens at 5671 or 443."""
    admin_port: int = EMULATOR_ADMIN_PORT
    """Of an emulator's administration, which is plain HTTP."""
    max_message_bytes: int = 262_144
    """What the tier carries: 256 KiB on Standard, 1 MiB and more on Premium."""
    request_timeout_s: float = 30.0
    """How long one request may take, connecting included."""
    look_s: float = 0.25
    """How long the service is given to show what a queue holds: more than a round trip to it. It
    never says that there is nothing."""

    def __attrs_post_init__(self) -> None:
        if not self.namespace or "/" in self.namespace or ":" in self.namespace:
            raise ConfigurationError(
                "ServiceBusSettings.namespace", self.namespace, f"give the host alone; see {_FORM}"
            )
        if (self.key_name is None) != (self.key is None):
            raise ConfigurationError(
                "ServiceBusSettings.key_name", self.key_name, "give key_name and key, or neither"
            )
        if not isinstance(self.key, Secret | None):
            raise ConfigurationError("ServiceBusSettings.key", "…", "use text, or None")
        for field, said in (("key_name", self.key_name), ("key", revealed(self.key))):
            if said is not None and (not said or ";" in said):
                raise ConfigurationError(
                    f"ServiceBusSettings.{field}", "…", "use some text without a semicolon"
                )
        if self.is_emulator and self.key_name is None:
            raise ConfigurationError(
                "ServiceBusSettings.key_name", None, "an emulator wants key_name and key"
            )
        if self.port is not None and not self.is_emulator:
            raise ConfigurationError(
                "ServiceBusSettings.port", self.port, "only an emulator has a port of its choice"
            )
        if not 0 < self.admin_port < 65_536:
            raise ConfigurationError(
                "ServiceBusSettings.admin_port", self.admin_port, "use 1 to 65535"
            )
        for field in ("request_timeout_s", "look_s"):
            if not 0 < getattr(self, field) < inf:
                raise ConfigurationError(
                    f"ServiceBusSettings.{field}",
                    getattr(self, field),
                    "use a number of seconds above zero",
                )
        if self.max_message_bytes < 65_536:
            raise ConfigurationError(
                "ServiceBusSettings.max_message_bytes", self.max_message_bytes, "use 65536 or more"
            )

    @property
    def address(self) -> str:
        """Where it is, without a secret: for logs and errors."""
        port = f":{self.port}" if self.port is not None else ""
        return f"sb://{self.namespace}{port}"

    @property
    def amqp_port(self) -> int:
        """Where AMQP is spoken."""
        if self.is_emulator:
            return self.port or EMULATOR_PORT
        return WEBSOCKET_PORT if self.is_websocket else AMQP_PORT

    @property
    def read_s(self) -> float:
        """How long a link waits for a frame before it looks at the time."""
        return self.look_s * 0.4

    @property
    def connection_string(self) -> str:
        """For the SDK, with its secret."""
        host = f"{self.namespace}:{self.amqp_port}" if self.is_emulator else self.namespace
        parts = [
            f"Endpoint=sb://{host}",
            f"SharedAccessKeyName={self.key_name}",
            f"SharedAccessKey={revealed(self.key)}",
        ]
        if self.is_emulator:
            parts.append("UseDevelopmentEmulator=true")
        return ";".join(parts) + ";"

    @classmethod
    def from_connection_string(cls, text: str, **fields: Any) -> ServiceBusSettings:
        """As Azure's portal shows it: `Endpoint=sb://…;SharedAccessKeyName=…;SharedAccessKey=…`."""
        said = _connection_parts(text)
        try:
            parts = urlsplit(said["endpoint"])
            host, port = parts.hostname, parts.port
        except (KeyError, ValueError):
            raise _bad_string("it names no Endpoint=sb://…") from None
        if "sharedaccesssignature" in said or "entitypath" in said:
            raise _bad_string("use one with a key, for the whole namespace: no EntityPath")
        return cls(
            namespace=host or "",
            key_name=said.get("sharedaccesskeyname"),
            key=said.get("sharedaccesskey"),
            is_emulator=said.get("usedevelopmentemulator", "").lower() == "true",
            port=port,
            **fields,
        )

    @classmethod
    def from_url(cls, url: str) -> ServiceBusSettings:
        """`sb://namespace.servicebus.windows.net`, or with `key_name:key@` in front of it.

        What is not a letter or a digit in a key is written as %XX.
        """
        shown = _shown(url)
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise ConfigurationError("gateway", shown, _USE) from None
        if parts.scheme != "sb" or parts.path.strip("/") or not host:
            raise ConfigurationError("gateway", shown, _USE)
        fields = url_options(parts.query, shown, cls, _OPTIONS)
        if parts.username:
            fields["key_name"] = unquote(parts.username)
        if parts.password:
            fields["key"] = unquote(parts.password)
        return cls(namespace=host, port=port, **fields)


def _shown(url: str) -> str:
    """The URL without its secrets; of one that a key may have torn apart, nothing.

    A `/` in a key that is not written as %2F ends the host: the key is then a port and a path.
    """
    scheme, _, rest = url.partition("://")
    host = re.split("[/?#]", rest, maxsplit=1)[0]
    port = host.rpartition("@")[2].rpartition("]")[2].partition(":")[2]
    if scheme != "sb" or "@" in rest[len(host) :] or (port and not port.isdecimal()):
        return "…"
    return without_secrets(url)


def _bad_string(remedy: str) -> ConfigurationError:
    # Its text may hold a key in any place, so nothing of it is repeated.
    return ConfigurationError("ServiceBusSettings.connection_string", "…", remedy)


def _connection_parts(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in text.split(";"):
        name, equals, value = part.strip().partition("=")
        if equals:
            found[name.strip().lower()] = value.strip()
        elif name:
            raise _bad_string("use Name=value;Name=value, as Azure's portal shows it")
    return found

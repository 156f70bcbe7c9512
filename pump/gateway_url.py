"""Gateways by URL: the scheme names an entry point, so `pump` imports no gateway."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from urllib.parse import urlsplit

from .clock import Clock
from .errors import ConfigurationError
from .ports import Gateway
from .shadowing import shadowing_files

ENTRY_POINT_GROUP = "pumphouse.gateways"
_EXTRAS = {
    "sqs": "sqs",
    "s3": "s3",
    "amqp": "rabbitmq",
    "amqps": "rabbitmq",
    "nats": "nats",
    "sb": "servicebus",
}


def gateway_from_url(url: str, clock: Clock) -> Gateway:
    """Build, without opening it, the gateway that a URL names; `ConfigurationError` otherwise."""
    try:
        scheme = urlsplit(url).scheme
    except ValueError:  # its words may repeat a password
        remedy = "this is no URL; write it as memory://, local://folder or sqs://region"
        raise ConfigurationError("gateway", without_secrets(url), remedy) from None
    known = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    if scheme not in known:
        raise ConfigurationError("gateway", without_secrets(url), _unknown(scheme, sorted(known)))
    gateway = _load(known[scheme], url)(url, clock)
    if not isinstance(gateway, Gateway):
        raise ConfigurationError(
            "gateway", without_secrets(url), f"{known[scheme].value} makes no Gateway"
        )
    return gateway


def _load(point: EntryPoint, url: str):  # type: ignore[no-untyped-def]
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        for name, path in shadowing_files().items():
            if point.value.startswith(name):
                raise ConfigurationError(
                    "gateway",
                    without_secrets(url),
                    f"your {path} stands in front of Pumphouse's own package {name!r}; rename it",
                ) from error
        extra = _EXTRAS.get(point.name, point.name)
        raise ConfigurationError(
            "gateway", without_secrets(url), f"{error}; try: pip install 'pumphouse[{extra}]'"
        ) from error


def _unknown(scheme: str, known: list[str]) -> str:
    choices = ", ".join(f"{name}://" for name in known) or "none is installed"
    if scheme in _EXTRAS:
        return (
            f"no gateway for {scheme}:// is installed; try: "
            f"pip install 'pumphouse[{_EXTRAS[scheme]}]' (installed: {choices})"
        )
    return f"use one of {choices}"


def without_secrets(url: str) -> str:
    """The URL without user name, password and query, which may hold secrets."""
    try:
        parts = urlsplit(url)
    except ValueError:
        # Where its parts begin and end is anybody's guess.
        return f"{url.partition(':')[0]}:…" if ":" in url else "…"
    if not parts.scheme:
        # A connection string is no URL, and has its key in it.
        return url if url.replace("-", "").isalnum() else "…"
    if "@" in url.partition("://")[2][len(parts.netloc) :]:
        # A password with a slash or a question mark in it: its first half looks like the host.
        return f"{parts.scheme}://…"
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"

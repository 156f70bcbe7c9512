"""Gateways by URL: the scheme names an entry point, so `pump` imports no gateway."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from .capabilities import Capabilities
from .clock import SYSTEM_CLOCK, Clock
from .errors import ConfigurationError
from .ports import Gateway

ENTRY_POINT_GROUP = "pumphouse.gateways"
DISTRIBUTION = "pumphouse"
_MEMBERS = ("capabilities", "open", "aclose", "consumer", "producer", "admin")
_EXTRAS = {
    "sqs": "sqs",
    "s3": "s3",
    "amqp": "rabbitmq",
    "amqps": "rabbitmq",
    "nats": "nats",
    "postgres": "postgres",
    "postgresql": "postgres",
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
    point = known[scheme]
    factory = _load(point, url)
    if (problem := _unfit(factory)) is not None:
        raise ConfigurationError("gateway", without_secrets(url), f"{point.value} {problem}")
    return checked_gateway(factory(url, clock), without_secrets(url), point.value)


def checked_gateway(gateway: object, shown: str, maker: str) -> Gateway:
    """The gateway, if it is one; otherwise a `ConfigurationError` that names what it lacks."""
    # Not by isinstance: from Python 3.12 on it does not see what `__getattr__` delegates.
    missing = [name for name in _MEMBERS if not hasattr(gateway, name)]
    kind = type(gateway).__name__
    if inspect.iscoroutine(gateway):
        gateway.close()
        why = "what it returns must be awaited; making a gateway is no I/O, so define it with def"
    elif missing:
        why = f"{kind} lacks {', '.join(missing)}; pump.ports.Gateway says what each must do"
    elif wrong := [name for name in _MEMBERS if not _is_fit(name, getattr(gateway, name))]:
        why = f"of {kind}, {', '.join(wrong)} is not what pump.ports.Gateway says"
    else:
        return cast("Gateway", gateway)
    raise ConfigurationError("gateway", shown, f"{maker} makes no Gateway: {why}")


def _is_fit(name: str, member: object) -> bool:
    return isinstance(member, Capabilities) if name == "capabilities" else callable(member)


def _unfit(factory: object) -> str | None:
    """What keeps an entry point from being called with a URL and a clock, None if nothing."""
    if not callable(factory):
        return "is not callable; name a function from_url(url, clock) as the entry point"
    try:
        inspect.signature(factory).bind("scheme://", SYSTEM_CLOCK)
    except TypeError as error:
        return f"cannot be called with a URL and a clock ({error}); define it as (url, clock)"
    except ValueError:
        return None  # some built-in callables have no signature to look at
    return None


def _load(point: EntryPoint, url: str) -> Any:
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
        raise ConfigurationError(
            "gateway", without_secrets(url), f"{error}; {_remedy(point)}"
        ) from error


def _remedy(point: EntryPoint) -> str:
    """What to install, where we know it: a third party's gateway has no extra of ours."""
    owner = point.dist.name if point.dist is not None else None
    if owner == DISTRIBUTION:
        return f"try: pip install '{DISTRIBUTION}[{_EXTRAS.get(point.name, point.name)}]'"
    package = "" if owner is None else f" of the package {owner!r}"
    return f"the gateway {point.value}{package} cannot be imported: install what it needs"


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
        # Where its parts begin and end is unknown.
        return f"{url.partition(':')[0]}:…" if ":" in url else "…"
    if not parts.scheme:
        # A connection string is no URL, and has its key in it.
        return url if url.replace("-", "").isalnum() else "…"
    if "@" in url.partition("://")[2][len(parts.netloc) :]:
        # A password with a slash or a question mark in it: its first half looks like the host.
        return f"{parts.scheme}://…"
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


# Shadowing: a user's own `handlers.py` stands in front of our package of that name.

OUR_PACKAGES = ("pump", "gateways", "handlers")


def shadowing_files(search_path: Iterable[str] | None = None) -> dict[str, Path]:
    """The files that Python would import instead of our packages, by package name.

    Looks where the interpreter would look, in its order, up to the place ours lie in.
    """
    ours = Path(__file__).resolve().parent.parent
    found: dict[str, Path] = {}
    for entry in sys.path if search_path is None else search_path:
        folder = Path(entry or ".").resolve()
        if folder == ours:
            break
        for name in OUR_PACKAGES:
            for candidate in (folder / name / "__init__.py", folder / f"{name}.py"):
                if name not in found and candidate.is_file():
                    found[name] = candidate
    return found

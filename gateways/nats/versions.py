"""The oldest SDK this works with, checked before anything is sent (R77)."""

from __future__ import annotations

import re
from importlib import metadata

from pump.errors import ConfigurationError

from .limits import MINIMUM_SERVER

PACKAGE = "nats-py"
MINIMUM = "2.9"
INSTALL = "pip install 'pumphouse[nats]'"


def installed() -> str | None:
    """The version of the SDK, None when it is not installed; reads files."""
    try:
        return metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        return None


def check_sdk(found: str | None) -> None:
    """Raise `ConfigurationError`, naming the cure, when the SDK is missing or too old."""
    if found is None:
        raise ConfigurationError(PACKAGE, "not installed", f"run {INSTALL}")
    if numbers(found) < numbers(MINIMUM):
        remedy = f"needs {PACKAGE} >= {MINIMUM}; run {INSTALL.replace('install', 'install -U')}"
        raise ConfigurationError(PACKAGE, found, remedy)


def check_server(found: str) -> None:
    """Raise `ConfigurationError` when the server is too old."""
    if numbers(found)[:2] < MINIMUM_SERVER:
        wanted = ".".join(map(str, MINIMUM_SERVER))
        raise ConfigurationError("nats-server", found, f"needs nats-server >= {wanted}")


def numbers(version: str) -> tuple[int, ...]:
    """A version as numbers that compare."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])

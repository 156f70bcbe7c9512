"""The oldest SDK this works with, checked before anything is sent (R77)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import metadata

from pump.errors import ConfigurationError

MINIMUM = {"azure-servicebus": "7.15", "azure-identity": "1.16", "aiohttp": "3.9"}
BELOW = {"azure-servicebus": "8"}
"""Parts of the SDK are used that it does not promise to keep (see `sdk`)."""
INSTALL = "pip install 'pumphouse[servicebus]'"


def check_sdk(packages: Iterable[str] = MINIMUM) -> None:
    """Raise `ConfigurationError`, naming the cure, when a package is missing or too old."""
    for package in packages:
        check_version(package, installed(package))


def installed(package: str) -> str | None:
    """The version that is installed, None when it is not; reads files."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def check_version(package: str, found: str | None) -> None:
    """Raise `ConfigurationError` when this version is missing, too old or too new."""
    if found is None:
        raise ConfigurationError(package, "not installed", f"run {INSTALL}")
    if numbers(found) < numbers(MINIMUM[package]):
        needed = f"{package} >= {MINIMUM[package]}"
    elif package in BELOW and numbers(found) >= numbers(BELOW[package]):
        needed = f"{package} < {BELOW[package]}"
    else:
        return
    raise ConfigurationError(
        package, found, f"needs {needed}; run {INSTALL.replace('install', 'install -U')}"
    )


def numbers(version: str) -> tuple[int, ...]:
    """A version as numbers that compare."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])

"""The oldest SDK and server this works with, checked before anything is sent (R77)."""

from __future__ import annotations

import re
from importlib import metadata

from pump.errors import ConfigurationError

MINIMUM = {"aio-pika": "10", "aiormq": "7"}
MINIMUM_SERVER = "3.10"
"""The first with a time to live, and with dead-lettering that loses nothing, on quorum queues."""
INSTALL = "pip install 'pumphouse[rabbitmq]'"


def check_sdk() -> None:
    """Raise `ConfigurationError`, naming the cure, when the SDK is missing or too old."""
    for package in MINIMUM:
        check_version(package, installed(package))


def installed(package: str) -> str | None:
    """The version that is installed, None when it is not; reads files."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def check_version(package: str, found: str | None) -> None:
    """Raise `ConfigurationError` when this version is missing or too old."""
    minimum = MINIMUM[package]
    if found is None:
        raise ConfigurationError(package, "not installed", f"run {INSTALL}")
    if numbers(found) < numbers(minimum):
        remedy = f"needs {package} >= {minimum}; run {INSTALL.replace('install', 'install -U')}"
        raise ConfigurationError(package, found, remedy)


def check_server(version: str) -> None:
    """Raise `ConfigurationError` when the broker is too old. One that does not say is tried."""
    if version and numbers(version) < numbers(MINIMUM_SERVER):
        raise ConfigurationError(
            "RabbitMQ", version, f"needs RabbitMQ >= {MINIMUM_SERVER}; upgrade the broker"
        )


def numbers(version: str) -> tuple[int, ...]:
    """A version as numbers that compare."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])

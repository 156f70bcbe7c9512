"""The oldest SDKs this works with, checked before anything is sent (R77)."""

from __future__ import annotations

import re
from importlib import metadata

from pump.errors import ConfigurationError

from .settings import TransportKind

MINIMUM = {"boto3": "1.35", "aioboto3": "13.2", "aiohttp": "3.14"}
"""The oldest versions: with them SQS speaks JSON and the SDKs know the standard retry mode; and
aiohttp can be kept from repeating a write by itself."""
PACKAGES = {
    TransportKind.BOTO3: ("boto3",),
    TransportKind.AIOBOTO3: ("boto3", "aioboto3"),
    TransportKind.LEAN: ("boto3", "aiohttp"),
}
"""What each transport stands on."""
INSTALL = "pip install 'pumphouse[sqs]'"


def check_versions(kind: TransportKind) -> None:
    """Raise `ConfigurationError`, naming the cure, when the SDK is missing or too old."""
    for package in PACKAGES[kind]:
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
    if _numbers(found) < _numbers(minimum):
        remedy = f"needs {package} >= {minimum}; run {INSTALL.replace('install', 'install -U')}"
        raise ConfigurationError(package, found, remedy)


def missing(package: str) -> ConfigurationError:
    """What to raise when an SDK cannot be imported."""
    return ConfigurationError(package, "not installed", f"run {INSTALL}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])

"""The SDKs: conditional writes are younger than much else of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pump.errors import ConfigurationError

from .._aws import versions
from .._aws.settings import TransportKind

MINIMUM: Final[Mapping[str, str]] = {**versions.MINIMUM, "boto3": "1.36", "aioboto3": "14"}
"""The oldest that know `IfMatch` of PutObject, which came in November 2024 (botocore 1.35.69)."""


def check_sdk(kind: TransportKind) -> None:
    """Raise `ConfigurationError`, naming the cure, when the SDK is missing or too old.

    Reads files: call it in a thread.
    """
    for package in versions.PACKAGES[kind]:
        check_version(package, versions.installed(package))


def check_version(package: str, found: str | None) -> None:
    """Raise `ConfigurationError` when this version is missing or too old."""
    if found is None:
        raise ConfigurationError(package, "not installed", "run pip install 'pumphouse[s3]'")
    if _numbers(found) < _numbers(MINIMUM[package]):
        raise ConfigurationError(
            package,
            found,
            f"conditional writes need {package} >= {MINIMUM[package]}; "
            f"run pip install -U 'pumphouse[s3]'",
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])

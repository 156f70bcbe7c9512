"""The versions of SDKs and servers that we work with, checked before anything is sent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib import metadata

import attrs

from .errors import ConfigurationError


@attrs.frozen(kw_only=True)
class Packages:
    """The packages of one extra of ours, each with the versions that work: `{"boto3": ">=1.35"}`.

    A pre-release counts as what it comes before: 8.0b1 is not below 8, and 8.1b1 is.
    """

    extra: str
    versions: Mapping[str, str]
    need: str = "needs"
    """What an error says before the package's name."""

    def check_installed(self, packages: Iterable[str] | None = None) -> None:
        """Raise `ConfigurationError` for the first of them that is missing, too old or too new.

        Reads files: call it in a thread.
        """
        for package in self.versions if packages is None else packages:
            self.check(package, installed(package))

    def check(self, package: str, found: str | None) -> None:
        """Raise `ConfigurationError`, naming what to run, if this version will not do."""
        # Loaded here since a program that imports a gateway need not open one.
        from packaging.specifiers import SpecifierSet
        from packaging.version import InvalidVersion, Version

        if found is None:
            raise self.missing(package)
        wanted = sorted(SpecifierSet(self.versions[package]), key=str, reverse=True)
        try:
            version = Version(found)
            broken = [each for each in wanted if not each.contains(version, prereleases=True)]
        except InvalidVersion:
            broken = wanted
        if broken:
            bounds = f"{package} {broken[0].operator} {broken[0].version}"
            remedy = f"{self.need} {bounds}; run pip install -U 'pumphouse[{self.extra}]'"
            raise ConfigurationError(package, found, remedy)

    def missing(self, package: str) -> ConfigurationError:
        """What to raise when a package is not installed, or cannot be imported."""
        remedy = f"run pip install 'pumphouse[{self.extra}]'"
        return ConfigurationError(package, "not installed", remedy)


def installed(package: str) -> str | None:
    """The version that is installed, None when it is not; reads files."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def server_version(text: str) -> tuple[int, ...]:
    """What a server calls its version, as numbers that compare; empty when there are none.

    Servers do not number themselves as Python packages do: RabbitMQ has had `3.13.0-beta.5.12+g1`,
    NATS `2.12.1-preview.2`. What follows the third number does not count.
    """
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])

"""Machine checks: Python, packages, extras, Spark, and modules that stand in front of ours."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from importlib.metadata import PackageNotFoundError, entry_points, metadata, requires, version

from ..findings import Finding, error, ok, warning
from ..gateway_url import ENTRY_POINT_GROUP
from .loading import put_working_folder_first, shadowing_warnings
from .spark_checks import spark_findings

_DISTRIBUTION = "pumphouse"
_OLDEST_PYTHON = (3, 11)
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")


def machine_findings() -> list[Finding]:
    """Look at everything that is the same for all apps."""
    return [
        _python(),
        _packages(),
        _gateways(),
        *_extras(),
        *spark_findings(),
        *_shadowing(),
    ]


def _python() -> Finding:
    running = sys.version.split()[0]
    if sys.version_info < _OLDEST_PYTHON:
        return error("python", running, "use Python 3.11 or newer")
    return ok("python", f"{running} ({sys.executable})")


def _packages() -> Finding:
    versions = {name: installed_version(name) for name in _required()[""]}
    missing = [name for name, found in versions.items() if found is None]
    if missing:
        return error("packages", f"missing: {', '.join(missing)}", f"pip install {_DISTRIBUTION}")
    listed = ", ".join(f"{name} {found}" for name, found in sorted(versions.items()))
    return ok("packages", f"{_DISTRIBUTION} {version(_DISTRIBUTION)}, {listed}")


def _gateways() -> Finding:
    names = sorted({f"{point.name}://" for point in entry_points(group=ENTRY_POINT_GROUP)})
    if not names:
        return error(
            "gateways", "none is registered", f"pip install --force-reinstall {_DISTRIBUTION}"
        )
    return ok("gateways", ", ".join(names))


def _extras() -> list[Finding]:
    required = _required()
    names = sorted(metadata(_DISTRIBUTION).get_all("Provides-Extra") or ())
    return [_extra(name, required[name]) for name in names]


def _extra(name: str, packages: list[str]) -> Finding:
    versions = {package: installed_version(package) for package in packages}
    if all(found is not None for found in versions.values()):
        listed = ", ".join(f"{package} {found}" for package, found in versions.items())
        return ok(f"extra {name}", listed or "nothing to install here")
    missing = ", ".join(package for package, found in versions.items() if found is None)
    return ok(
        f"extra {name}",
        f"not installed (missing: {missing})",
        f"to use it: pip install '{_DISTRIBUTION}[{name}]'",
    )


def _shadowing() -> list[Finding]:
    put_working_folder_first()
    found = shadowing_warnings()
    if not found:
        return [ok("shadowing", "no module of yours stands in front of ours")]
    return [warning("shadowing", *line.split("; ", 1)) for line in found]


def installed_version(package: str) -> str | None:
    """The version that is installed, None when none is."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _required() -> dict[str, list[str]]:
    """The packages of each extra; those of "" are needed by all."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in requires(_DISTRIBUTION) or ():
        requirement, _, marker = line.partition(";")
        name = _REQUIREMENT.match(requirement.strip())
        extra = _EXTRA.search(marker)
        if name is not None:
            found["" if extra is None else extra.group(1)].append(name.group(1))
    return found

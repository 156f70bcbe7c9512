"""Which versions of an SDK will do, and what is said of others (R77)."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gateways._aws import sdk
from gateways.nats import connection as nats
from gateways.rabbitmq import connection as rabbitmq
from gateways.s3 import gateway as s3
from gateways.servicebus import connection as servicebus
from pump.errors import ConfigurationError
from pump.versions import Packages, installed, server_version

ROOT = Path(__file__).parents[2]
OURS = {
    each.extra: each
    for each in (sdk.PACKAGES, s3.PACKAGES, nats.PACKAGES, rabbitmq.PACKAGES, servicebus.PACKAGES)
}
BOAT = Packages(extra="boat", versions={"sail": ">=1.2,<3", "oar": ">=2"})


@pytest.mark.parametrize("found", ["1.2", "1.2.0", "1.10", "1.2.1rc1", "2.99.0b1", "2.0+local"])
def test_when_a_version_is_within_the_bounds_then_nothing_is_said(found: str) -> None:
    BOAT.check("sail", found)


@pytest.mark.parametrize("found", ["1.1.99", "0.9", "1.2rc1", "unknown", ""])
def test_when_a_version_is_too_old_then_the_error_says_which_is_needed(found: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        BOAT.check("sail", found)

    assert (refused.value.field, refused.value.value) == ("sail", found)
    assert refused.value.remedy == "needs sail >= 1.2; run pip install -U 'pumphouse[boat]'"


@pytest.mark.parametrize("found", ["3", "3.0.1", "3.0b1", "1!1.5"])
def test_when_a_version_is_too_new_then_the_error_says_below_which_it_must_be(found: str) -> None:
    with pytest.raises(ConfigurationError, match="needs sail < 3; run pip install -U"):
        BOAT.check("sail", found)


def test_when_a_package_is_missing_then_the_error_says_what_to_install() -> None:
    with pytest.raises(ConfigurationError, match=r"run pip install 'pumphouse\[boat\]'"):
        BOAT.check_installed()

    assert installed("sail") is None


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("2.10", (2, 10)),
        ("2.12.1-preview.2", (2, 12, 1)),
        ("3.13.0-beta.5.12+g1", (3, 13, 0)),
        ("", ()),
        ("unknown", ()),
    ],
)
def test_when_a_server_tells_its_version_then_its_numbers_compare(
    text: str, numbers: tuple[int, ...]
) -> None:
    assert server_version(text) == numbers


@pytest.mark.parametrize("extra", OURS)
def test_when_everything_is_installed_then_the_check_passes(extra: str) -> None:
    OURS[extra].check_installed()


@pytest.mark.parametrize("extra", OURS)
def test_the_oldest_versions_are_those_that_the_extra_allows(extra: str) -> None:
    """What pip installs is what the check accepts."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {
        str(canonicalize_name(each.name)): each.specifier
        for each in map(Requirement, project["optional-dependencies"][extra])
    }

    for package, versions in OURS[extra].versions.items():
        oldest = versions.partition(",")[0]
        assert package not in declared or oldest in str(declared[package]).split(",")

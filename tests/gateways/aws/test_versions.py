"""The SDKs' versions are checked before anything is sent (R77)."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import pytest

from gateways._aws.sdk import NEEDED, PACKAGES
from gateways._aws.settings import TransportKind
from pump.errors import ConfigurationError

from .conftest import Connect
from .fake_aws import FakeAws


def _pretend(monkeypatch: pytest.MonkeyPatch, package: str, version: str | None) -> None:
    real = metadata.version

    def told(name: str) -> str:
        if name != package:
            return real(name)
        if version is None:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(metadata, "version", told)


@pytest.mark.parametrize("version", ["1.35.99", "0.9", "1.9.300"])
async def test_when_the_sdk_is_too_old_then_opening_names_the_cure(
    monkeypatch: pytest.MonkeyPatch, aws: FakeAws, connect: Connect, version: str
) -> None:
    """R77: every transport stands on boto3."""
    _pretend(monkeypatch, "boto3", version)
    transport = connect()

    with pytest.raises(ConfigurationError) as caught:
        await transport.open()

    assert (caught.value.field, caught.value.value) == ("boto3", version)
    assert "boto3 >= 1.36" in caught.value.remedy
    assert "pip install -U 'pumphouse[sqs]'" in caught.value.remedy
    assert aws.connection_count == 0


async def test_when_the_sdk_is_not_installed_then_a_call_names_the_cure(
    monkeypatch: pytest.MonkeyPatch, kind: TransportKind, connect: Connect
) -> None:
    """R77: also for who calls without opening."""
    _pretend(monkeypatch, NEEDED[kind][-1], None)

    with pytest.raises(ConfigurationError, match=r"pip install 'pumphouse\[sqs\]'"):
        await connect().call("sqs", "list_queues", {})


async def test_when_the_sdk_cannot_be_imported_then_the_cure_is_named_too(
    monkeypatch: pytest.MonkeyPatch, kind: TransportKind, connect: Connect
) -> None:
    """R77: half an installation still has its metadata."""
    monkeypatch.setitem(sys.modules, NEEDED[kind][-1], None)

    with pytest.raises(ConfigurationError, match=r"pip install 'pumphouse\[sqs\]'"):
        await connect().open()


@pytest.mark.parametrize("package", PACKAGES.versions)
@pytest.mark.parametrize("newer", ["", ".0", ".1rc1", ".99"])
def test_when_the_sdk_is_new_enough_then_nothing_is_said(package: str, newer: str) -> None:
    """R77."""
    PACKAGES.check(package, PACKAGES.versions[package].removeprefix(">=") + newer)


def test_when_no_sdk_is_there_then_the_gateway_can_be_imported_to_say_so() -> None:
    """R77: each transport imports what it stands on when it is opened."""
    absent = "import sys; sys.modules.update(dict.fromkeys(('boto3', 'aioboto3', 'aiohttp')))"

    ended = subprocess.run([sys.executable, "-c", f"{absent}; import gateways.sqs"], check=False)

    assert ended.returncode == 0

"""The oldest server, and the SDK, checked before anything is sent (R77)."""

from __future__ import annotations

import pytest

from gateways.nats.connection import PACKAGES, check_server
from pump.errors import ConfigurationError


@pytest.mark.parametrize("found", ["2.9", "2.9.0", "2.16.0", "3.0.0rc1"])
def test_when_the_sdk_is_new_enough_then_nothing_is_said(found: str) -> None:
    PACKAGES.check("nats-py", found)


@pytest.mark.parametrize("found", [None, "2.8.9", "0.11", "unknown"])
def test_when_the_sdk_is_missing_or_too_old_then_the_cure_is_named(found: str | None) -> None:
    with pytest.raises(ConfigurationError, match=r"pip install .*pumphouse\[nats\]"):
        PACKAGES.check("nats-py", found)


@pytest.mark.parametrize("found", ["2.10.0", "2.12.1-preview.2", "2.15.1", "3.0"])
def test_when_the_server_is_new_enough_then_nothing_is_said(found: str) -> None:
    check_server(found)


@pytest.mark.parametrize("found", ["2.9.25", "1.4.1", ""])
def test_when_the_server_is_too_old_then_the_version_it_takes_is_named(found: str) -> None:
    with pytest.raises(ConfigurationError, match=r"2\.10"):
        check_server(found)

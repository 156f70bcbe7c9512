"""The SDK's versions are checked before anything is sent (R77)."""

from __future__ import annotations

import pytest

from gateways.servicebus.connection import PACKAGES
from pump.errors import ConfigurationError


@pytest.mark.parametrize("found", ["7.15", "7.15.0", "7.20.1", "7.99.0b1"])
def test_when_the_sdk_is_one_this_works_with_then_nothing_is_said(found: str) -> None:
    PACKAGES.check("azure-servicebus", found)


@pytest.mark.parametrize("found", [None, "7.14.2", "0.50", "unknown"])
def test_when_the_sdk_is_missing_or_too_old_then_the_cure_is_named(found: str | None) -> None:
    with pytest.raises(ConfigurationError, match=r"pip install .*pumphouse\[servicebus\]"):
        PACKAGES.check("azure-servicebus", found)


def test_when_the_sdk_is_too_new_then_that_is_said_too() -> None:
    """Parts of it are used that it does not promise to keep."""
    with pytest.raises(ConfigurationError, match="azure-servicebus < 8"):
        PACKAGES.check("azure-servicebus", "8.0.0")

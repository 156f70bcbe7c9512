"""Fixtures: the lean transport alone, and boto3 to compare it with, on one scripted AWS."""

from __future__ import annotations

import pytest

from gateways._aws.settings import TransportKind


@pytest.fixture(params=[TransportKind.LEAN], ids=["lean"])
def kind(request: pytest.FixtureRequest) -> TransportKind:
    """What `connect` makes, unless it is told another."""
    assert isinstance(request.param, TransportKind)
    return request.param

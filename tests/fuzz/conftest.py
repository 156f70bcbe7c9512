"""How hard the fuzz tests try: for seconds in every run, for minutes in `make test-slow`."""

from __future__ import annotations

import pytest

from .exploring import Effort

QUICK = Effort(examples=40, is_random=False)
LONG = Effort(examples=450, is_random=True)


@pytest.fixture(params=[QUICK, pytest.param(LONG, marks=pytest.mark.slow)], ids=["quick", "long"])
def effort(request: pytest.FixtureRequest) -> Effort:
    """Each test that asks for it runs twice, the second time only when slow tests do."""
    found = request.param
    assert isinstance(found, Effort)
    return found

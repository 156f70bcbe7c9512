"""What a simulated world leaves behind goes with it."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _leave_no_tasks_behind() -> Iterator[None]:
    """Processes that died at a request leave their tasks, in cycles, by the thousand. asyncio looks
    at every task there is whenever somebody asks which are running, as the virtual clock does: the
    tests that follow would take minutes.
    """
    yield
    gc.collect()

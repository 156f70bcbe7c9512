"""Fixtures of the health tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog.testing


@pytest.fixture
def quiet() -> Iterator[None]:
    """Swallow the log, where a test breaks what would print long tracebacks."""
    with structlog.testing.capture_logs():
        yield

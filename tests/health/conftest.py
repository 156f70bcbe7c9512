"""Fixtures of the health tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog.testing

from ..loops import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]


@pytest.fixture
def quiet() -> Iterator[None]:
    """Swallow the log, where a test breaks what would print long tracebacks."""
    with structlog.testing.capture_logs():
        yield

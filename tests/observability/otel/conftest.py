"""Fixtures: spans of the test's own provider, and telemetry through it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.context import get_current

from pump.observability.otel import OpenTelemetry

from .shop import Spans


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def tracing(spans: Spans) -> OpenTelemetry:
    """Traces alone, into `spans`."""
    return OpenTelemetry(tracer_provider=spans.provider, metrics=False)


@pytest.fixture(autouse=True)
def _leaves_no_context_behind() -> Iterator[None]:
    yield
    assert not get_current(), "a context was attached and not detached"

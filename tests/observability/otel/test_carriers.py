"""Carriers: what a stranger writes into headers is read where it can be, and never logged."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from hypothesis import given, strategies as st
from opentelemetry import baggage, propagate
from opentelemetry.trace import get_current_span

from pump.observability.otel.tracing import readable

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PIECES = st.sampled_from(
    ["a", "=", ",", ";", " ", "\t", "@", "%", "é", '"', "\\", "\n", "x=1", "tenant=ada", "k@v=2"]
)
HEADERS = st.lists(PIECES).map("".join) | st.text() | st.text("a=,", min_size=4_000, max_size=9_000)


class Heard(logging.Handler):
    """What OpenTelemetry logs."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture(scope="module")
def heard() -> Iterator[Heard]:
    handler, logger = Heard(), logging.getLogger("opentelemetry")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


@given(state=HEADERS, carried=HEADERS)
def test_when_headers_hold_any_text_then_opentelemetry_has_nothing_to_complain_of(
    heard: Heard, state: str, carried: str
) -> None:
    """R61: a stranger's header is in nobody's log."""
    headers = {"traceparent": PARENT, "tracestate": state, "baggage": carried}

    context = propagate.extract(readable(headers))

    assert heard.lines == []
    assert get_current_span(context).get_span_context().span_id == 0xB7AD6B7169203331


@pytest.mark.parametrize(
    ("carried", "tenant"),
    [
        ("tenant=ada", "ada"),
        ("a=1,tenant=ada%20l", "ada l"),
        ("a=1, tenant=ada;p=1", "ada;p=1"),
        ("tenant = ada", None),
        ("tenant", None),
    ],
)
def test_when_baggage_is_well_formed_then_it_is_read(carried: str, tenant: str | None) -> None:
    context = propagate.extract(readable({"baggage": carried}))

    assert baggage.get_baggage("tenant", context) == tenant


def test_when_a_state_is_well_formed_then_it_is_read() -> None:
    headers = {"traceparent": PARENT, "tracestate": "rojo=00f067aa, congo@sys=t61r"}

    state = get_current_span(propagate.extract(readable(headers))).get_span_context().trace_state

    assert dict(state) == {"rojo": "00f067aa", "congo@sys": "t61r"}
    assert readable(headers) is headers

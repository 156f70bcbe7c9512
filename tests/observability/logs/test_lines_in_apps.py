"""An app with logging of its own sees the canonical line too, whatever way it takes."""

from __future__ import annotations

import logging
from typing import Any

import structlog
from structlog.testing import capture_logs

from pump import Message
from pump.loop.processing import DeliveryResult
from pump.loop.reporting import DeliveryLines
from pump.outcome import ACK, Reject, RejectionReason
from pump.testing.builders import a_delivery, a_message
from pump.testing.virtual_clock import VirtualClock

from .conftest import SetUp

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACE_PARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"
DEAD = Reject(RejectionReason.DELIVERY_ERROR, "ValueError: a secret")
UNACCEPTABLE = Reject(RejectionReason.UNACCEPTABLE, "a secret")


def ended(message: Message | None = None, *, attempt: int = 1, **fields: Any) -> DeliveryResult:
    delivery = a_delivery(message or a_message(b"a secret", id="m1"), attempt=attempt)
    return DeliveryResult(
        **{"delivery": delivery, "action": ACK, "outcome": ACK, "run_s": 0.25, **fields}
    )


def write(*results: DeliveryResult, clock: VirtualClock | None = None) -> None:
    lines = DeliveryLines("orders-sub", gateway="memory", clock=clock or VirtualClock())
    lines.write(results)


class Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def test_when_the_app_added_a_handler_then_it_is_told_too(set_up: SetUp) -> None:
    written = set_up()
    heard = Heard()
    logging.getLogger().addHandler(heard)

    write(ended())

    assert len(written.lines) == len(heard.records) == 1


def test_when_the_app_put_a_filter_on_our_handler_then_it_is_asked(set_up: SetUp) -> None:
    written = set_up()
    logging.getLogger().handlers[0].addFilter(lambda record: False)

    write(ended())

    assert written.getvalue() == ""


def test_when_the_app_configured_structlog_anew_then_its_processors_see_the_line(
    set_up: SetUp,
) -> None:
    written = set_up()
    seen: list[Any] = []

    def keep(logger: object, method: str, event: Any) -> Any:
        seen.append((method, dict(event)))
        raise structlog.DropEvent

    structlog.configure(processors=[keep])

    write(ended(), ended(outcome=DEAD))

    assert [(method, event["status"]) for method, event in seen] == [
        ("info", "processed"),
        ("error", "dead-lettered"),
    ]
    assert written.getvalue() == ""


def test_when_a_test_captures_logs_then_the_line_is_among_them(set_up: SetUp) -> None:
    written = set_up()

    with capture_logs() as lines:
        write(ended())
    write(ended())

    assert [line["message_id"] for line in lines] == ["m1"]
    assert len(written.lines) == 1


def test_when_the_app_bound_variables_for_every_line_then_ours_has_them_too(
    set_up: SetUp,
) -> None:
    written = set_up()

    with structlog.contextvars.bound_contextvars(service="shop"):
        write(ended())

    assert written.lines[0]["service"] == "shop"


def test_when_the_app_uses_the_standard_library_alone_then_it_hears_the_line() -> None:
    """An app that embeds us may never have heard of structlog."""
    heard = Heard()
    logging.getLogger().addHandler(heard)
    logging.getLogger().setLevel(logging.INFO)

    write(ended())

    [record] = heard.records
    assert (record.name, record.levelname) == ("pump.delivery", "INFO")
    assert "message.settled" in record.getMessage()
    assert "message_id" in record.getMessage()

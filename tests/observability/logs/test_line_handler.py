"""Our handler, on lines that are not ours: libraries' and the application's."""

from __future__ import annotations

import decimal
import logging
from typing import Any

import pytest
import structlog
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.trace.span import TraceState
from opentelemetry.util.re import parse_env_headers

from pump import Command
from pump.observability.log import to_json
from pump.observability.redaction import REDACTED

from .conftest import SetUp

SECRET = "hunter2hunter2"


class Greet(Command):
    name: str


GREET = Greet(name=SECRET)


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError(SECRET)


def test_when_the_app_logs_a_request_then_its_type_is_printed(set_up: SetUp) -> None:
    """R61."""
    written = set_up()

    log = structlog.get_logger("mine")
    log.info("got", request=GREET, data={"request": GREET}, password=SECRET)
    log.info("got %s", GREET)
    log.info(GREET)
    logging.getLogger("mine").info("got %s of %d", GREET, 3)
    logging.getLogger("mine").info("got %(request)r", {"request": GREET})
    logging.getLogger("mine").info(GREET)
    logging.getLogger("mine").info("got", extra={"request": GREET, "api_key": SECRET})

    assert SECRET not in written.getvalue()
    assert written.lines[0]["request"] == "<Greet>"
    assert written.lines[0]["data"] == {"request": "<Greet>"}
    assert [line["event"] for line in written.lines] == [
        *("got", "got <Greet>", "<Greet>", "got <Greet> of 3", "got '<Greet>'", "<Greet>", "got"),
    ]


@pytest.mark.parametrize("format", ["json", "console"])
def test_when_an_exception_is_logged_then_its_traceback_shows_no_variables_and_no_credentials(
    format: str, set_up: SetUp
) -> None:
    """R57, R61."""
    written = set_up("info", format)

    def handle(body: str) -> None:
        raise ConnectionError("cannot reach amqp://ann:hunter2@host")

    try:
        handle(SECRET.upper() + "!")
    except ConnectionError:
        structlog.get_logger("mine").exception("failed")
        logging.getLogger("mine").exception("failed")

    text = written.getvalue()
    assert text.count(f"ConnectionError: cannot reach amqp://{REDACTED}@host") == 2
    assert SECRET.upper() not in text


@pytest.mark.parametrize("format", ["json", "console"])
def test_when_a_line_cannot_be_printed_then_that_is_said_and_nothing_of_it_is_quoted(
    format: str, set_up: SetUp
) -> None:
    """R57: the standard library would print the arguments."""
    written = set_up("info", format)

    logging.getLogger("mine").info("%d apples", SECRET)
    logging.getLogger("mine").info("got", extra={"broken": Broken()})

    assert written.getvalue().count("line.lost") == 2
    assert "mine" in written.getvalue()
    assert SECRET not in written.getvalue()
    assert "Traceback" not in written.getvalue()


def test_when_a_librarys_line_has_numbers_then_they_stay_numbers(set_up: SetUp) -> None:
    written = set_up()

    logging.getLogger("mine").info("%d of %.1f, %s", 3, decimal.Decimal("2.5"), True)

    assert written.lines[0]["event"] == "3 of 2.5, True"


def test_when_other_handlers_get_the_same_record_then_they_get_all_of_it(set_up: SetUp) -> None:
    """What an application's own handlers print is the application's business."""
    set_up()
    heard: list[logging.LogRecord] = []

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record)

    logging.getLogger().addHandler(Heard())

    logging.getLogger("mine").info("got %s", GREET)

    assert heard[0].args == (GREET,)


def test_when_drivers_would_log_what_they_send_then_debug_does_not_make_them(
    set_up: SetUp,
) -> None:
    """R57: aiosqlite logs every statement with its parameters, botocore every request."""
    written = set_up("debug")

    for name in ("aiosqlite", "botocore.endpoint", "urllib3.connectionpool", "azure.core"):
        logging.getLogger(name).debug("sent %s", SECRET)
    logging.getLogger("mine").debug("heard")

    assert [line["event"] for line in written.lines] == ["heard"]


def test_when_a_strangers_header_cannot_be_read_then_it_is_not_quoted(set_up: SetUp) -> None:
    """R61: OpenTelemetry warns of it, and any sender can write such a header."""
    written = set_up("debug")

    W3CBaggagePropagator().extract({"baggage": SECRET})
    TraceState([(SECRET, SECRET * 99)])

    assert SECRET not in written.getvalue()


def test_when_the_collectors_headers_cannot_be_read_then_they_are_not_quoted(set_up: SetUp) -> None:
    """R57: OTEL_EXPORTER_OTLP_HEADERS holds what the collector's owner paid for."""
    written = set_up("debug")

    parse_env_headers(f"x-team {SECRET}", liberal=True)

    assert SECRET not in written.getvalue()


@pytest.mark.parametrize(
    ("value", "printed"),
    [("\ud800", '"\\ud800"'), (2**70, str(2**70)), (float("nan"), "null"), ("ü", '"ü"')],
)
def test_whatever_a_line_holds_it_is_json(value: Any, printed: str) -> None:
    assert to_json(None, "info", {"n": value}).replace(" ", "") == f'{{"n":{printed}}}'


def test_on_a_terminal_nobody_can_move_the_cursor(set_up: SetUp) -> None:
    written = set_up("info", "console")

    logging.getLogger("mine").info("a\x1b[2Jb", extra={"colour": "\x9bred"})

    assert "a\\x1b[2Jb" in written.getvalue()
    assert "colour=\\x9bred" in written.getvalue()

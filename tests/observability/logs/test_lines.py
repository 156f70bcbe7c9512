"""The canonical line: one a delivery, on the short way and on the long one."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from pump import DeferMessage, InvalidMessage, Message
from pump.errors import ConnectionFailed
from pump.loop.processing import DeliveryResult
from pump.loop.reporting import DeliveryLines
from pump.observability.sampling import DeliverySampling, is_kept
from pump.outcome import ABANDON, ACK, Defer, Fate, Reject, RejectionReason
from pump.testing.builders import a_delivery, a_message
from pump.testing.virtual_clock import VirtualClock
from tests.docs.markdown import rows_under

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


def test_when_a_message_is_processed_then_its_line_says_all_there_is_to_know(set_up: SetUp) -> None:
    """R61."""
    written = set_up()
    clock = VirtualClock()
    message = a_message(
        b"a secret",
        id="m1",
        type="shop.PlaceOrder",
        correlation_id="c1",
        created_at_s=clock.time_s() - 1.5,
        headers={"traceparent": TRACE_PARENT, "authorization": "a secret"},
    )

    write(ended(message, attempt=2), clock=clock)

    [line] = written.lines
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "message.settled",
        "level": "info",
        "logger": "pump.delivery",
        "subscription": "orders-sub",
        "gateway": "memory",
        "queue": "orders",
        "message_id": "m1",
        "type": "shop.PlaceOrder",
        "correlation_id": "c1",
        "outcome": "ack",
        "status": "processed",
        "attempt": 2,
        "run_s": 0.25,
        "age_s": 1.5,
        "trace_id": TRACE_ID,
        "span_id": SPAN_ID,
    }


@pytest.mark.parametrize(
    ("result", "level", "status"),
    [
        ({}, "info", "processed"),
        ({"action": Defer(9), "outcome": Defer(9), "error": ValueError()}, "warning", "retrying"),
        ({"action": Defer(), "outcome": Defer()}, "warning", "retrying"),
        ({"action": Defer(9), "outcome": Defer(9), "error": DeferMessage()}, "info", "retrying"),
        ({"action": ACK, "outcome": DEAD, "error": ValueError()}, "error", "dead-lettered"),
        ({"action": ACK, "outcome": UNACCEPTABLE}, "error", "dead-lettered"),
        ({"action": Defer(9), "outcome": DEAD, "error": ValueError()}, "warning", "retrying"),
        ({"action": ABANDON, "outcome": ABANDON, "run_s": 0.0}, "info", "released"),
    ],
    ids=[
        *("processed", "failed", "recalled", "deferred by the handler", "dead-lettered"),
        *("unacceptable", "kept because its queue is away", "handed back untried"),
    ],
)
def test_the_level_fits_what_became_of_it(
    result: dict[str, Any], level: str, status: str, set_up: SetUp
) -> None:
    """R61, R24."""
    written = set_up()

    write(ended(**result))

    [line] = written.lines
    assert (line["level"], line["status"]) == (level, status)


def test_when_a_message_is_rejected_then_its_line_says_why_and_where_it_is_but_quotes_nothing(
    set_up: SetUp,
) -> None:
    """R61: the text of an error travels with the dead letter (R28), and is not in the log."""
    written = set_up()
    error = InvalidMessage("a secret")

    write(ended(outcome=UNACCEPTABLE, destination="orders-invalid", error=error))

    [line] = written.lines
    assert (line["reason"], line["destination"], line["error"]) == (
        "Unacceptable",
        "orders-invalid",
        "InvalidMessage",
    )
    assert "a secret" not in written.getvalue()


def test_when_several_handlers_failed_then_each_kind_of_error_is_named_once(set_up: SetUp) -> None:
    written = set_up()
    inner = ExceptionGroup("a secret", [KeyError("a secret"), ValueError()])
    error = ExceptionGroup("a secret", [ValueError("a secret"), inner])

    write(ended(action=Defer(), outcome=Defer(), error=error))

    assert written.lines[0]["error"] == "KeyError, ValueError"
    assert "a secret" not in written.getvalue()


def test_when_a_batch_is_settled_then_each_delivery_has_one_line_in_one_write(
    set_up: SetUp,
) -> None:
    """R61: others write to the same stream, and must not come in between."""
    written = set_up()

    write(*(ended(a_message(id=f"m{n}")) for n in range(10)))

    assert [line["message_id"] for line in written.lines] == [f"m{n}" for n in range(10)]
    assert [text.count("\n") for text in written.writes] == [1] * 10


def test_lines_of_both_ways_and_of_others_stay_in_order(set_up: SetUp) -> None:
    written = set_up()

    write(ended(a_message(id="m1")), ended(a_message(id="m2"), outcome=DEAD))
    logging.getLogger("mine").warning("between")
    write(ended(a_message(id="m3")))

    seen = [line.get("message_id", line["event"]) for line in written.lines]
    assert seen == ["m1", "m2", "between", "m3"]


def _all_kinds() -> Sequence[DeliveryResult]:
    clock = VirtualClock()
    return [
        ended(),
        ended(attempt=3),
        ended(a_message(id="ü–\x1b[2J", type='a"b', created_at_s=clock.time_s() - 0.1234567)),
        ended(a_message(id="m", correlation_id="c", headers={"traceparent": TRACE_PARENT})),
        replace(ended(), trace=("f" * 32, "e" * 16)),
    ]


def test_the_short_way_and_the_long_way_say_the_same(set_up: SetUp) -> None:
    short = set_up(sample=1)
    write(*_all_kinds())
    long = set_up(sample=1)
    logging.getLogger("pump.delivery").addHandler(unheard := logging.NullHandler())
    try:
        write(*_all_kinds())
    finally:
        logging.getLogger("pump.delivery").removeHandler(unheard)

    ways = short.lines, long.lines
    for line in (*ways[0], *ways[1]):
        assert len(line.pop("timestamp")) == len("2026-01-01T00:00:00.000000Z")
    assert ways[0] == ways[1]


def test_the_short_way_is_taken(set_up: SetUp, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is what makes a line cost microseconds."""
    written = set_up()
    monkeypatch.setattr(logging.Logger, "handle", None)

    write(ended())

    assert len(written.lines) == 1


def test_when_the_app_makes_its_own_records_then_the_line_is_one_of_them(set_up: SetUp) -> None:
    written, made = set_up(), []

    def make(*args: Any, **kwargs: Any) -> logging.LogRecord:
        made.append(record := logging.LogRecord(*args, **kwargs))
        return record

    logging.setLogRecordFactory(make)
    try:
        write(ended())
    finally:
        logging.setLogRecordFactory(logging.LogRecord)

    assert len(written.lines) == 1
    assert made[0].name == "pump.delivery"


def test_every_field_of_the_line_is_documented(set_up: SetUp) -> None:
    written = set_up(sample=2)
    write(
        *_all_kinds(),
        ended(a_message(id=next(id_ for id_ in "abcdefgh" if is_kept(id_, 2)))),
        ended(
            a_message(created_at_s=0.0),
            outcome=UNACCEPTABLE,
            destination="b",
            error=ValueError(),
            fate=Fate.ROUTED,
        ),
    )
    rows = rows_under(Path(__file__).parents[3] / "docs" / "logging.md", "## One line a delivery")
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", row[0])}

    used = set().union(*written.lines) - {"event", "level", "logger", "timestamp"}

    assert used == documented


def test_when_the_level_is_warning_then_only_what_went_wrong_has_a_line(set_up: SetUp) -> None:
    written = set_up("warning")

    write(
        ended(a_message(id="fine")),
        ended(a_message(id="failed"), action=Defer(), outcome=Defer(), error=ValueError()),
        ended(a_message(id="put off"), action=Defer(), outcome=Defer(), error=DeferMessage()),
        ended(a_message(id="dead"), outcome=DEAD),
    )

    assert [line["message_id"] for line in written.lines] == ["failed", "dead"]


def test_when_nothing_went_wrong_and_nobody_listens_then_the_time_is_not_even_asked(
    set_up: SetUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Off is off."""
    set_up("warning")
    clock = VirtualClock()
    monkeypatch.setattr(clock, "time_s", None)

    write(ended(), clock=clock)


def test_when_a_strangers_id_is_half_a_character_then_there_is_a_line_all_the_same(
    set_up: SetUp,
) -> None:
    written = set_up()

    write(ended(a_message(id="\ud800")), ended(a_message(id="m2", type="\udfff")))

    assert [line["message_id"] for line in written.lines] == ["\ud800", "m2"]


@pytest.mark.parametrize(
    "header",
    [
        "a secret",
        f"00-{TRACE_ID}-a secret",
        f"00-{'0' * 32}-{SPAN_ID}-01",
        f"00-{TRACE_ID}-{'0' * 16}-01",
        f"00-{TRACE_ID.upper()}-{SPAN_ID}-01",
        "",
    ],
)
def test_when_a_trace_header_is_none_then_nothing_of_it_is_printed(
    header: str, set_up: SetUp
) -> None:
    """R61: a header is a stranger's text."""
    written = set_up()

    write(ended(a_message(headers={"traceparent": header})))

    assert "trace_id" not in written.lines[0]
    assert "a secret" not in written.getvalue()


def test_when_it_was_handled_in_a_span_then_that_is_the_span_of_its_line(set_up: SetUp) -> None:
    written = set_up()
    message = a_message(headers={"traceparent": TRACE_PARENT})

    write(
        replace(ended(message), trace=(TRACE_ID, "e" * 16)),
        replace(ended(message, outcome=DEAD), trace=(TRACE_ID, "e" * 16)),
    )

    assert [line["span_id"] for line in written.lines] == ["e" * 16] * 2


def test_when_lines_are_sampled_then_those_kept_say_so_and_trouble_is_always_logged(
    set_up: SetUp,
) -> None:
    written = set_up(sample=10)
    ids = [f"m{n}" for n in range(1_000)]

    write(*(ended(a_message(id=id_)) for id_ in ids))
    kept = written.lines
    write(
        *(ended(a_message(id=id_), attempt=2) for id_ in ids[:20]),
        *(ended(a_message(id=id_), outcome=DEAD) for id_ in ids[:20]),
        *(ended(a_message(id=id_), action=Defer(), outcome=Defer()) for id_ in ids[:20]),
    )

    assert [line["message_id"] for line in kept] == [id_ for id_ in ids if is_kept(id_, 10)]
    assert {line["sampled"] for line in kept} == {10}
    rest = written.lines[len(kept) :]
    assert len(rest) == 60
    assert not any("sampled" in line for line in rest)


def test_when_an_embedding_app_samples_then_its_processors_see_what_is_kept() -> None:
    logger = logging.getLogger("pump.delivery")
    logger.addFilter(DeliverySampling(10))
    logger.setLevel(logging.INFO)
    try:
        with capture_logs() as lines:
            write(*(ended(a_message(id=f"m{n}")) for n in range(100)))
    finally:
        logger.setLevel(logging.NOTSET)

    assert 0 < len(lines) < 50
    assert {line["sampled"] for line in lines} == {10}


@pytest.mark.parametrize("error", [OSError(28, "No space left"), ValueError("closed file")])
def test_when_the_line_cannot_be_written_then_the_pump_does_not_notice(
    error: Exception, set_up: SetUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = set_up()

    def fail(text: str) -> int:
        raise error

    monkeypatch.setattr(written, "write", fail)

    write(ended(), ended(outcome=DEAD), ended(error=ConnectionFailed("a", "b")))


def test_when_the_stream_buffers_then_each_line_is_flushed(set_up: SetUp) -> None:
    """A crash must not take the lines before it along."""
    set_up()
    raw = io.BytesIO()
    handler = logging.getLogger().handlers[0]
    assert isinstance(handler, logging.StreamHandler)
    handler.stream = io.TextIOWrapper(raw, encoding="utf-8")

    write(ended())

    assert raw.getvalue().endswith(b"}\n")


def test_on_a_terminal_the_line_is_for_people(set_up: SetUp) -> None:
    written = set_up("info", "console")

    write(ended(a_message(id="m\x1b[2J1")))

    assert "message.settled" in written.getvalue()
    assert "status=processed" in written.getvalue()
    assert "\x1b" not in written.getvalue()

"""What `pump bench` prints for people."""

import io
from typing import Any

import pytest
from rich.console import Console

from pump.bench.report import BenchReport, Cost, Machine, suggest
from pump.bench.scratch import Leftover
from pump.cli.bench_run import print_left, print_report, progress_of
from pump.testing import VirtualClock
from tests.bench.figures import measured, settings


def report(**fields: Any) -> BenchReport:
    found = measured(requests={"put": 100, "get": 130})
    values: dict[str, Any] = {
        "app": "shop:app",
        "gateway": "s3://bucket",
        "subscription": "orders",
        "queue": "orders-bench-1a2b",
        "handler": "none",
        "body_bytes": 12,
        "settings": settings(),
        "measured": found,
        "machine": Machine(cores=2, python="3.11.7", load_before=None, load_after=1.0),
        "cost": Cost(dollars_a_million=1.5, is_counted=True, source="a list"),
        "is_billed": True,
        "suggestions": suggest(found, settings()),
    }
    return BenchReport(**{**values, **fields})


def printed(found: BenchReport, encoding: str = "utf-8") -> str:
    written = io.BytesIO()
    file = io.TextIOWrapper(written, encoding=encoding, write_through=True)
    print_report(found, Console(file=file, width=200))
    return written.getvalue().decode(encoding)


def test_counted_requests_and_their_price_are_printed() -> None:
    page = printed(report())

    assert "230 a thousand messages (get 130, put 100)" in page
    assert "about $1.50 a million messages (requests counted; a list)" in page
    assert "load ? before and 1.0 after" in page
    assert "█" in page


def test_few_messages_a_second_are_not_rounded_to_none() -> None:
    page = printed(report(measured=measured(sent=3, handled=3, wall_s=8.0, send_s=9.0)))

    assert "throughput  0.375 a second" in page
    assert "sending     0.333 a second" in page


def test_a_price_that_is_not_known_is_not_made_up() -> None:
    assert "not known" in printed(report(cost=None))
    assert "not billed by the request" in printed(report(cost=None, is_billed=False))


def test_where_the_console_knows_only_ascii_nothing_else_is_printed() -> None:
    page = printed(report(app="läden:app"), "ascii")

    assert "l\\xe4den:app - s3://bucket" in page
    assert "us a message" in page
    assert "#" in page


def test_a_queue_that_is_left_is_named_with_how_to_remove_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_left([Leftover(queue="orders-bench-1a2b", why="it is away")], "amqp", "amqp://x")

    assert capsys.readouterr().err == (
        "warning: the queue 'orders-bench-1a2b' is left, maybe with messages in it (it is away); "
        "remove it with: rabbitmqctl delete_queue orders-bench-1a2b\n"
    )


class Running:
    """A run that is half way."""

    sent = 80
    done = 40
    total = 100


async def test_on_a_terminal_progress_is_shown_and_elsewhere_nothing() -> None:
    shown, hidden = io.StringIO(), io.StringIO()
    clock = VirtualClock()

    for file, is_terminal in ((shown, True), (hidden, False)):
        console = Console(file=file, force_terminal=is_terminal, width=100)
        async with progress_of(Running(), console=console, clock=clock):
            await clock.advance(1.0)

    assert "sent" in shown.getvalue()
    assert "80/100" in shown.getvalue()
    assert "40/100" in shown.getvalue()
    assert hidden.getvalue() == ""

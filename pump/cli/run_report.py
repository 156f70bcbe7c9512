"""Reports: how `pump run` says that it started and how it ended.

To people as a banner and a table; to machines, when the log is JSON, as events of the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Protocol

import attrs
from rich.text import Text

from ..app import App
from ..clock import format_duration
from ..loop import PumpStats
from ..observability import vocabulary
from ..observability.log import get_logger
from ..observability.telemetry import Counters
from ..performer import Performer
from ..subscription import Subscription
from .console import print_warning, printable, stdout, table
from .session import shown_gateway

_COUNTS = {
    "received": "received",
    "processed": "processed",
    "retried": "retried",
    "dead_lettered": "dead-lettered",
    "invalid": "invalid",
    "released": "released",
    "leases_lost": "leases lost",
    "restarts": "restarts",
}
"""The fields of `PumpStats` that are summed up, with their headings."""
Counts = Mapping[str, Mapping[str, int]]
"""The numbers of each subscription."""
_PROBLEMS = {"dead-lettered", "invalid", "leases lost", "restarts"}


class RunReport(Protocol):
    """Reports one run: its start and its end."""

    def warn(self, message: str) -> None:
        """Something is not as it should be, and the run goes on."""

    def started(self, app: App, target: str) -> None:
        """The app is open and about to pump."""

    def ended(self, app: App, performers: Sequence[Performer], run_s: float) -> None:
        """The pumps have stopped, whatever the reason."""


def report_in(format: str) -> RunReport:
    """The report that fits a log format."""
    return LogReport() if format == "json" else TextReport()


class TextReport:
    """A banner and a table, for people."""

    def warn(self, message: str) -> None:
        print_warning(message)

    def started(self, app: App, target: str) -> None:
        console = stdout()
        title = f"Pumphouse {version('pumphouse')} · {target} · {shown_gateway(app)}"
        console.print(Text(printable(title), "bold"), soft_wrap=True)
        columns = ["subscription", "queue", "request", "at once", "dead letters", "invalid"]
        console.print(table(columns, map(_subscription_row, app.subscriptions), right=["at once"]))
        for warning in missing_queue_warnings(app.subscriptions):
            self.warn(warning)
        console.print("Running. Ctrl-C drains and stops; twice stops at once.")

    def ended(self, app: App, performers: Sequence[Performer], run_s: float) -> None:
        print_summary({each.subscription.name: counts_of(each.stats) for each in performers}, run_s)
        for warning in loss_warnings(app.counters):
            self.warn(warning)


class LogReport:
    """Events in the log, for machines."""

    def __init__(self) -> None:
        self._log = get_logger("pump.run")

    def warn(self, message: str) -> None:
        self._log.warning(vocabulary.RUN_WARNED, detail=message)

    def started(self, app: App, target: str) -> None:
        self._log.info(
            vocabulary.RUN_STARTED,
            app=target,
            gateway=shown_gateway(app),
            version=version("pumphouse"),
            subscriptions=[_described(each) for each in app.subscriptions],
        )

    def ended(self, app: App, performers: Sequence[Performer], run_s: float) -> None:
        log_summary({each.subscription.name: counts_of(each.stats) for each in performers}, run_s)
        for warning in loss_warnings(app.counters):
            self.warn(warning)


def summarize(counts: Counts, run_s: float, format: str) -> None:
    """Say how a run ended, as fits a log format."""
    if format == "json":
        log_summary(counts, run_s)
    else:
        print_summary(counts, run_s)


def print_summary(counts: Counts, run_s: float) -> None:
    """What every subscription has done, as a table."""
    console = stdout()
    console.print(Text(f"Stopped after {format_duration(run_s)}.", "bold"))
    rows = [_summary_row(name, each) for name, each in counts.items()]
    if len(counts) > 1:
        rows.append(_summary_row("total", _totals(counts)))
    columns = ["subscription", *_COUNTS.values()]
    console.print(table(columns, rows, right=_COUNTS.values()))


def log_summary(counts: Counts, run_s: float) -> None:
    """The same as an event."""
    get_logger("pump.run").info(
        vocabulary.RUN_ENDED, run_s=round(run_s, 3), **_totals(counts), subscriptions=dict(counts)
    )


def missing_queue_warnings(subscriptions: Sequence[Subscription]) -> list[str]:
    """A line for each subscription whose failing messages would be discarded."""
    return [
        f"subscription {each.name!r} has no dead_letter_queue: messages that keep failing are "
        f"discarded; set dead_letter_queue={each.queue + '-dead'!r}"
        for each in subscriptions
        if each.dead_letter_queue is None
    ]


def _subscription_row(subscription: Subscription) -> list[str | Text]:
    dead_letters = subscription.dead_letter_queue
    return [
        subscription.name,
        subscription.queue,
        request_name(subscription),
        str(subscription.concurrency),
        Text("none", "yellow") if dead_letters is None else dead_letters,
        subscription.invalid_queue or dead_letters or Text("none", "yellow"),
    ]


def request_name(subscription: Subscription) -> str:
    """What the subscription's messages are, in a word."""
    return "(resolved)" if subscription.request is None else subscription.request.__qualname__


def _described(subscription: Subscription) -> dict[str, object]:
    return {
        "name": subscription.name,
        "queue": subscription.queue,
        "request": request_name(subscription),
        "concurrency": subscription.concurrency,
        "dead_letter_queue": subscription.dead_letter_queue,
        "invalid_queue": subscription.invalid_queue,
    }


def counts_of(stats: PumpStats) -> dict[str, int]:
    """The numbers that are summed up."""
    values = attrs.asdict(stats)
    return {field: values[field] for field in _COUNTS}


def _totals(counts: Counts) -> dict[str, int]:
    return {field: sum(each.get(field, 0) for each in counts.values()) for field in _COUNTS}


def _summary_row(name: str, counts: Mapping[str, int]) -> list[str | Text]:
    return [name, *(_number(_COUNTS[field], counts.get(field, 0)) for field in _COUNTS)]


def _number(heading: str, count: int) -> Text:
    return Text(f"{count:,}", "yellow" if count and heading in _PROBLEMS else "")


def loss_warnings(counters: Counters) -> list[str]:
    """A line for what was rejected and found no queue."""
    return warnings_of(
        discarded=counters.value(vocabulary.DISCARDED), spilled=counters.value(vocabulary.SPILLED)
    )


def warnings_of(*, discarded: int, spilled: int) -> list[str]:
    """A line for each that is not zero."""
    warnings = []
    if discarded:
        warnings.append(f"{discarded} rejected message(s) were discarded: no dead_letter_queue")
    if spilled:
        warnings.append(f"{spilled} rejected message(s) were spilled; see `pump spill ls`")
    return warnings

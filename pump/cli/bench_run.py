"""Bench runs: what `pump bench` does once its options are known."""

from __future__ import annotations

import asyncio
import logging
import secrets
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, redirect_stdout
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol
from urllib.parse import quote, unquote

import attrs
import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from ..app import App
from ..bench.measuring import Load, MakeMessage, Measurement, Meter
from ..bench.report import (
    BenchReport,
    EndReason,
    Measured,
    MeasuredSettings,
    Spread,
    Traffic,
    cost_of,
    is_billed,
    load_average,
    machine_now,
    series,
    suggest,
    warnings_of,
)
from ..bench.scratch import Leftover, ScratchGateway, ScratchNames, removal_hint
from ..clock import SYSTEM_CLOCK, Clock, format_duration
from ..errors import MappingError
from ..event_loop import on_signal, run
from ..exit_codes import ExitCode, Failure
from ..gateway_url import gateway_from_url
from ..loading import load_app, put_working_folder_first, shadowing_warnings
from ..message import Delivery, Message
from ..observability.sampling import DELIVERIES
from ..outcome import Signal
from ..ports import Gateway
from ..runtime import Runtime
from ..stores.spill import MemorySpill
from ..subscription import Subscription
from .bench import BenchOptions, chosen_subscription, idle_app
from .console import (
    ASCII,
    BLOCKS,
    bars,
    print_json,
    print_warning,
    printable,
    stderr,
    stdout,
    table,
)
from .run_report import request_name
from .session import set_up_logging

_CLEAN_UP_S = 60.0
"""How long a broker may take to empty a few queues before they are left as they are."""
_SHORT_WAIT = timedelta(seconds=1)


@attrs.frozen(kw_only=True, eq=False)
class _Bench:
    """A run that was decided on."""

    options: BenchOptions
    app: App
    subscription: Subscription
    body: bytes = attrs.field(repr=False)
    place: BenchTarget
    scratch: ScratchGateway


def bench_app(options: BenchOptions) -> ExitCode:
    """Load and check the app, ask, measure, and print; errors are the caller's to turn into
    words.
    """
    set_up_logging("warning", "console")
    put_working_folder_first()
    for warning in shadowing_warnings():
        print_warning(warning)
    app = load_app(options.target)
    app.override(gateway=options.gateway)
    subscription = chosen_subscription(app, options)
    body = options.payload()
    if options.runs_handlers:
        app.check()
    with bench_place(app) as place:
        _ask(app, options, place)
        names = ScratchNames(secrets.token_hex(4))
        scratch = ScratchGateway(place.gateway, names, keeps_options=options.keeps_options)
        bench = _Bench(
            options=options,
            app=app if options.runs_handlers else idle_app(scratch, subscription, app.clock),
            subscription=subscription,
            body=body,
            place=place,
            scratch=scratch,
        )
        with _without_a_line_a_message():
            return _measure_and_print(bench, app.gateway_name)


@contextmanager
def _without_a_line_a_message() -> Iterator[None]:
    """Thousands of generated messages may fail alike; the report counts them."""
    lines = logging.getLogger(DELIVERIES)
    level = lines.level
    lines.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        lines.setLevel(level)


def _ask(app: App, options: BenchOptions, place: BenchTarget) -> None:
    """Nothing that others can notice happens before it was confirmed."""
    count = options.load().total
    where = f"on {app.gateway_name}, in queues of their own"
    if options.runs_handlers:
        question = (
            f"Run the handlers of {options.target} on {count:,} messages {where}? "
            f"Whatever they write, call or charge happens for real."
        )
    elif place.keeps_queues:
        question = f"Send {count:,} messages {where}?"
    else:
        return
    if options.is_sure:
        return
    if not sys.stdin.isatty() or options.body == "-":
        raise click.UsageError(
            f"nothing was sent: there is no terminal to ask on; add --yes. {question}"
        )
    click.confirm(question, abort=True, err=True)


def _measure_and_print(bench: _Bench, gateway: str) -> ExitCode:
    try:
        # What handlers print is no part of the result.
        with redirect_stdout(sys.stderr):
            report = run(_report(bench, gateway))
    except BaseException as error:
        if bench.place.keeps_queues:
            print_left(bench.scratch.left, bench.scratch.capabilities.gateway, gateway)
        if isinstance(error, asyncio.CancelledError):
            raise KeyboardInterrupt from None
        raise
    if bench.options.as_json:
        print_json(report.to_json())
    else:
        print_report(report, stdout())
    for warning in report.warnings:
        print_warning(warning)
    print_left(report.left, bench.scratch.capabilities.gateway, gateway)
    return ExitCode.FORCED if report.measured.ended is EndReason.STOPPED else ExitCode.OK


async def _report(bench: _Bench, gateway: str) -> BenchReport:
    load_before = load_average()
    measured = await _measure(bench)
    machine = machine_now(load_before)
    settings = _settings(bench)
    traffic = Traffic(
        messages=measured.done,
        body_bytes=len(bench.body),
        calls=measured.calls,
        requests=measured.requests_of_done,
        is_fifo=bench.subscription.queue.endswith(".fifo"),
    )
    return BenchReport(
        app=bench.options.target,
        gateway=gateway,
        subscription=bench.subscription.name,
        queue=bench.scratch.names.of(bench.subscription.queue),
        handler="app" if bench.options.runs_handlers else "none",
        body_bytes=len(bench.body),
        settings=settings,
        measured=measured,
        machine=machine,
        cost=cost_of(bench.scratch.capabilities.gateway, traffic, bench.options.prices),
        is_billed=is_billed(bench.scratch.capabilities.gateway),
        suggestions=suggest(measured, settings),
        warnings=warnings_of(measured, machine),
        left=bench.scratch.left if bench.place.keeps_queues else (),
    )


async def _measure(bench: _Bench) -> Measured:
    app, scratch, load = bench.app, bench.scratch, bench.options.load()
    meter = Meter(app.clock)
    declared = bench.subscription if bench.options.runs_handlers else app.subscriptions[0]
    subscription = scratch.subscription(_impatient(declared, load))
    make = message_maker(bench.body, bench.options.type_name, load, app.clock)
    # Its ledger, its telemetry and its spill are not to hear of messages that are none.
    with app.replacing(gateway=scratch, clock=app.clock, spill=MemorySpill()):
        app.telemetry = meter
        measurement = Measurement(app, scratch, meter, load)
        with _ended_by_signals(measurement):
            async with app, _cleaned_up(bench):
                runtime = app.dispatcher([subscription]).runtime
                await check_readable(runtime, subscription, make(0))
                async with progress_of(measurement):
                    return await measurement.run(subscription, make)


def _impatient(subscription: Subscription, load: Load) -> Subscription:
    """Where all messages wait, an empty queue is the end: a long poll would only delay it."""
    if load.rate is not None:
        return subscription
    return attrs.evolve(subscription, wait=min(subscription.wait, _SHORT_WAIT))


@asynccontextmanager
async def _cleaned_up(bench: _Bench) -> AsyncIterator[None]:
    try:
        yield
    finally:
        try:
            async with bench.app.clock.timeout(_CLEAN_UP_S):
                await bench.scratch.clean_up()
        except TimeoutError:
            pass  # What is left says so.


@contextmanager
def _ended_by_signals(measurement: Measurement) -> Iterator[None]:
    """The first signal ends the run; each further one cuts short what ending it takes. Before it
    has begun, while a broker is looked for, the first one is enough.
    """
    task = asyncio.current_task()
    count = 0

    def end() -> None:
        nonlocal count
        count += 1
        if count == 1 and measurement.has_begun:
            measurement.stop()
        elif task is not None:
            task.cancel()

    with on_signal(end):
        yield


def _settings(bench: _Bench) -> MeasuredSettings:
    subscription, capabilities = bench.subscription, bench.scratch.capabilities
    return MeasuredSettings(
        concurrency=subscription.concurrency,
        prefetch=subscription.prefetch,
        lease_s=subscription.lease.total_seconds(),
        renew=subscription.renew,
        ordering_guarantee=subscription.ordering_guarantee,
        in_hand=subscription.max_in_flight,
        receive_batch=capabilities.receive_batch,
        is_remote=capabilities.spans_machines,
        is_shared=capabilities.is_shared,
        groups=bench.options.groups,
        options_left_out=() if bench.options.keeps_options else tuple(subscription.options),
    )


# The messages of a run, and whether the app can read them.


def message_maker(body: bytes, type_name: str, load: Load, clock: Clock) -> MakeMessage:
    """Makes messages that differ in nothing but their id, their time and their group."""

    def make(number: int) -> Message:
        return Message(
            body=body, type=type_name, group=load.group(number), created_at_s=clock.time_s()
        )

    return make


async def check_readable(runtime: Runtime, subscription: Subscription, message: Message) -> None:
    """`Failure` unless the message would reach a handler: thousands that do not measure nothing."""
    consumer = runtime.consumer(subscription)
    try:
        if runtime.encryption is not None:
            message = await runtime.encryption.encrypt(message, subscription.queue)
        await consumer.read(_as_delivered(message, subscription, runtime.clock))
    except (MappingError, Signal) as error:
        raise Failure(
            f"--body is not what subscription {subscription.name!r} reads: {error}",
            remedy=f"give the JSON of a {request_name(subscription)}, and with --type its type "
            f"where the queue carries several",
            exit_code=ExitCode.USAGE,
        ) from None
    finally:
        await consumer.aclose()


def _as_delivered(message: Message, subscription: Subscription, clock: Clock) -> Delivery:
    return Delivery(
        message=message,
        queue=subscription.queue,
        receipt="",
        attempt=1,
        lease_expires_at_s=clock.now_s() + subscription.lease.total_seconds(),
    )


# Where `pump bench` puts its queues.
#
# A gateway that keeps its queues in a folder gets a folder of its own for the run, on the same
# disk, which is removed with everything in it. Elsewhere they are on the app's own gateway, under
# names of their own.

_LOCAL = "local://"
_DEFAULT_FOLDER = ".pumphouse/queues"
_PREFIX = ".pumphouse-bench-"


@attrs.frozen(eq=False)
class BenchTarget:
    """A gateway to measure, not open yet."""

    gateway: Gateway
    keeps_queues: bool
    """Whether a queue that is not removed is still there once the process is gone."""


@contextmanager
def bench_place(app: App) -> Iterator[BenchTarget]:
    """Where to measure; a folder that was made for it is gone when the block ends."""
    url = app.gateway_url
    if url is None or not url.startswith(_LOCAL):
        gateway = app.built_gateway()
        yield BenchTarget(gateway, keeps_queues=gateway.capabilities.is_shared)
        return
    path, _, query = url.removeprefix(_LOCAL).partition("?")
    settings = f"?{query}" if query else ""
    with _folder_beside(Path(unquote(path) or _DEFAULT_FOLDER)) as folder:
        gateway = gateway_from_url(f"{_LOCAL}{quote(folder)}{settings}", app.clock)
        yield BenchTarget(gateway, keeps_queues=False)


def _folder_beside(path: Path) -> TemporaryDirectory[str]:
    beside = _nearest_folder(path)
    try:
        return TemporaryDirectory(prefix=_PREFIX, dir=beside, ignore_cleanup_errors=True)
    except OSError as error:
        raise Failure(
            f"cannot make a folder for the run in {str(beside)!r}: {error.strerror}",
            remedy="make it writable, or measure another gateway: --gateway local://FOLDER",
        ) from None


def _nearest_folder(path: Path) -> Path:
    """The folder above it that is there: the same disk, and nothing to clean up."""
    absolute = path.absolute()
    return next(each for each in absolute.parents if each.is_dir())


# The progress of a run: a line on a terminal, and nothing elsewhere.

_LOOK_S = 0.25
"""Seldom enough that drawing is no part of what is measured."""


class BenchRun(Protocol):
    """What is followed."""

    @property
    def total(self) -> int:
        """Messages that are to be sent."""

    @property
    def sent(self) -> int:
        """Messages so far that were sent."""

    @property
    def done(self) -> int:
        """Messages so far that are gone."""


@asynccontextmanager
async def progress_of(
    measurement: BenchRun, *, console: Console | None = None, clock: Clock = SYSTEM_CLOCK
) -> AsyncIterator[None]:
    """Show how far it is while the block runs."""
    shown = stderr() if console is None else console
    if not shown.is_terminal:
        yield
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(
        *columns, TimeElapsedColumn(), console=shown, transient=True, auto_refresh=False
    ) as progress:
        following = asyncio.create_task(_follow(measurement, progress, clock), name="progress")
        try:
            yield
        finally:
            following.cancel()
            await asyncio.wait([following])


async def _follow(measurement: BenchRun, progress: Progress, clock: Clock) -> None:
    sending = progress.add_task("sent", total=measurement.total)
    handling = progress.add_task("handled", total=measurement.total)
    while True:
        progress.update(sending, completed=measurement.sent)
        progress.update(handling, completed=measurement.done)
        progress.refresh()
        await clock.sleep(_LOOK_S)


# The report of `pump bench` for people: a chart, a few figures, and what to change.

_HEIGHT = 3
_MAX_SLOTS = 60
_MIN_SLOTS = 8
_LABEL = "settled  "
_PEAK_WIDTH = 18


def print_report(report: BenchReport, console: Console) -> None:
    """Print everything there is to say, but for warnings."""
    page = _BenchPage(report, console)
    page.heading()
    page.chart()
    page.figures()
    page.spreads()
    page.suggestions()


def print_left(left: Sequence[Leftover], gateway: str, where: str) -> None:
    """Say which throw-away queues are still there, and how to be rid of them."""
    for each in left:
        state = "empty" if each.is_empty else "maybe with messages in it"
        why = f" ({each.why})" if each.why else ""
        print_warning(
            f"the queue {each.queue!r} is left, {state}{why}; remove it with: "
            f"{removal_hint(gateway, each.queue, where)}"
        )


class _BenchPage:
    """One report on one console; plain ASCII where the console knows nothing else."""

    def __init__(self, report: BenchReport, console: Console) -> None:
        self._report = report
        self._measured = report.measured
        self._console = console
        self._is_ascii = console.options.ascii_only

    def heading(self) -> None:
        report = self._report
        handler = "its own handlers" if report.handler == "app" else "a handler that does nothing"
        parts = [
            report.app,
            report.gateway,
            f"subscription {report.subscription}",
            handler,
            f"bodies of {report.body_bytes:,} bytes",
        ]
        self._console.print(Text(self._shown(" · ".join(parts)), "bold"), soft_wrap=True)
        if report.settings.options_left_out:
            names = ", ".join(report.settings.options_left_out)
            self._say(f"without the queue's options {names}; see --keep-options")

    def chart(self) -> None:
        slots = max(_MIN_SLOTS, min(_MAX_SLOTS, self._console.width - len(_LABEL) - _PEAK_WIDTH))
        rates = series(self._measured.timeline, self._measured.wall_s, slots)
        if not rates or not max(rates):
            return
        lines = bars(rates, height=_HEIGHT, levels=ASCII if self._is_ascii else BLOCKS)
        labels = [" " * len(_LABEL)] * (len(lines) - 1) + [_LABEL]
        self._console.print()
        for number, (label, line) in enumerate(zip(labels, lines, strict=True)):
            peak = f"  peak {_rate(max(rates))}/s" if not number else ""
            self._console.print(
                Text.assemble(label, (line, "green"), peak), no_wrap=True, crop=True
            )
        each = self._shown(_short(self._measured.wall_s / slots))
        self._console.print(Text(f"{' ' * len(_LABEL)}one column is {each}", "dim"))

    def figures(self) -> None:
        rows = [
            ["messages", _messages(self._measured)],
            ["throughput", f"{_rate(self._measured.throughput)} a second"],
            ["sending", f"{_rate(self._measured.send_rate)} a second"],
            ["processor", _processor(self._measured)],
            ["requests", _requests(self._measured)],
            ["cost", self._cost()],
            ["machine", self._machine()],
        ]
        self._console.print()
        self._console.print(
            table(["measured", ""], [[name, self._shown(text)] for name, text in rows])
        )

    def spreads(self) -> None:
        start = "send" if self._measured.rate is None else "due"
        rows = [
            [name, *_times(spread)]
            for name, spread in (
                (f"{start} to handled", self._measured.latency),
                ("handler", self._measured.run),
            )
            if spread is not None
        ]
        if rows:
            columns = ["time", "p50", "p90", "p99", "max", "mean"]
            self._console.print()
            self._console.print(
                table(columns, [[self._shown(c) for c in row] for row in rows], right=columns[1:])
            )

    def suggestions(self) -> None:
        if not self._report.suggestions:
            return
        rows = [
            [each.setting, self._shown(each.advice), self._shown(each.reason)]
            for each in self._report.suggestions
        ]
        self._console.print()
        self._console.print(table(["change", "to", "because"], rows))

    def _cost(self) -> str:
        cost = self._report.cost
        if cost is None:
            return "not known" if self._report.is_billed else "not billed by the request"
        basis = "requests counted" if cost.is_counted else "requests estimated from the calls"
        return f"about ${cost.dollars_a_million:,.2f} a million messages ({basis}; {cost.source})"

    def _machine(self) -> str:
        machine = self._report.machine
        loads = [machine.load_before, machine.load_after]
        words = ["?" if load is None else f"{load:.1f}" for load in loads]
        return (
            f"{machine.cores} core(s), Python {machine.python}, "
            f"load {words[0]} before and {words[1]} after"
        )

    def _say(self, text: str) -> None:
        self._console.print(Text(self._shown(text), "dim"), soft_wrap=True)

    def _shown(self, text: str) -> str:
        plain = printable(text)
        if not self._is_ascii:
            return plain
        return (
            plain.replace("µ", "u").replace("·", "-").encode("ascii", "backslashreplace").decode()
        )


def _rate(a_second: float) -> str:
    """With as many places as keep it from being nothing."""
    return f"{a_second:,.0f}" if a_second >= 99.5 else f"{a_second:.3g}"


def _messages(measured: Measured) -> str:
    words = [f"{measured.handled:,} handled of {measured.sent:,} sent"]
    for name, count in (
        ("rejected", measured.rejected),
        ("retried", measured.retried),
        ("leases lost", measured.lost),
    ):
        if count:
            words.append(f"{count:,} {name}")
    return f"{', '.join(words)}, in {format_duration(measured.wall_s)}"


def _processor(measured: Measured) -> str:
    share = f"{measured.cpu_share:.0%} of one core"
    if measured.rate is not None:
        share += ", sending included"
    return share if measured.cpu_us is None else f"{measured.cpu_us:,.0f} µs a message, {share}"


def _requests(measured: Measured) -> str:
    calls = measured.calls
    made = f"{calls.receives:,} receive, {calls.settles:,} settle, {calls.extends:,} extend calls"
    if measured.requests is None or measured.requests_a_thousand is None:
        return f"not counted by this gateway; {made}"
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(measured.requests.items()))
    return f"{measured.requests_a_thousand:,.0f} a thousand messages ({kinds}); {made}"


def _times(spread: Spread) -> list[str]:
    moments = (spread.p50_s, spread.p90_s, spread.p99_s, spread.max_s, spread.mean_s)
    return [_short(seconds) for seconds in moments]


def _short(seconds: float) -> str:
    if seconds >= 0.0095:
        return format_duration(seconds)
    if seconds >= 0.00095:
        return f"{seconds * 1e3:.1f}ms"
    return f"{seconds * 1e6:.0f}µs" if seconds >= 9.5e-6 else f"{seconds * 1e6:.1f}µs"

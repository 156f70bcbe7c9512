"""Benching: what `pump bench` does once its options are known."""

from __future__ import annotations

import asyncio
import logging
import secrets
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, redirect_stdout
from datetime import timedelta

import attrs
import click

from ..app import App
from ..bench.machine import load_average, machine_now
from ..bench.measuring import Measurement
from ..bench.meter import Meter
from ..bench.names import ScratchNames
from ..bench.pacing import Load
from ..bench.pricing import Traffic, cost_of, is_billed
from ..bench.report import BenchReport, Ended, Measured, Settings, warnings_of
from ..bench.scratch import ScratchGateway
from ..bench.suggestions import suggest
from ..event_loop import run
from ..observability.sampling import DELIVERIES
from ..signal_handling import on_signal
from ..stores.spill import MemorySpill
from ..subscription import Subscription
from .bench_body import check_readable, message_maker
from .bench_choice import BenchOptions, chosen_subscription, idle_app
from .bench_place import Place, bench_place
from .bench_progress import progress_of
from .bench_tables import print_left, print_report
from .console import print_json, print_warning, stdout
from .exit_codes import ExitCode
from .loading import load_app, put_working_folder_first, shadowing_warnings
from .log_setup import set_up_logging

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
    place: Place
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


def _ask(app: App, options: BenchOptions, place: Place) -> None:
    """Nothing that others can notice happens before somebody has said so."""
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
        raise click.UsageError(f"nothing was sent: nobody is here to ask; add --yes. {question}")
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
    return ExitCode.FORCED if report.measured.ended is Ended.STOPPED else ExitCode.OK


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


def _settings(bench: _Bench) -> Settings:
    subscription, capabilities = bench.subscription, bench.scratch.capabilities
    return Settings(
        concurrency=subscription.concurrency,
        prefetch=subscription.prefetch,
        lease_s=subscription.lease.total_seconds(),
        renew=subscription.renew,
        ordering_guarantee=subscription.ordering_guarantee,
        in_hand=subscription.in_hand,
        receive_batch=capabilities.receive_batch,
        is_remote=capabilities.spans_machines,
        is_shared=capabilities.is_shared,
        groups=bench.options.groups,
        options_left_out=() if bench.options.keeps_options else tuple(subscription.options),
    )

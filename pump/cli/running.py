"""Running: what `pump run` does once its options are known."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Coroutine
from typing import Any

from ..app import App
from ..clock import SYSTEM_CLOCK, breathe
from ..dispatcher import Dispatcher
from ..event_loop import run as run_loop
from ..health.options import HealthOptions
from ..signal_handling import run_until_signalled
from .exit_codes import ExitCode
from .loading import load_app, put_working_folder_first, shadowing_warnings
from .log_setup import set_up_logging
from .reports import Report, report_in
from .run_options import RunOptions
from .telemetry import telemetry_choice, telemetry_of

_LINGER_S = 0.5
"""How long threads that have nothing to do may take to notice that the app has closed."""


def run_app(options: RunOptions) -> ExitCode:
    """Load, check and run the app; its errors are the caller's to turn into words."""
    format = set_up_logging(options.log_level, options.log_format, sample=options.log_sample)
    report = report_in(format)
    app = loaded_app(options, report)
    return run_to_the_end(_serve(app, options, report))


def loaded_app(options: RunOptions, report: Report, *, serves_metrics: bool = True) -> App:
    """The app as the options want it, checked. Without `serves_metrics` it measures what they
    ask for, and leaves it to others to serve that.
    """
    put_working_folder_first()
    for warning in shadowing_warnings():
        report.warn(warning)
    app = load_app(options.target)
    app.override(gateway=options.gateway, concurrency=dict(options.concurrencies))
    if options.telemetry:
        choice = telemetry_choice(options.telemetry)
        if not serves_metrics:
            choice = choice.unserved()
        app.telemetry = telemetry_of(choice, options.target.partition(":")[0])
    if options.ledger is not None:
        from ..stores.ledger import ledger_from

        app.override(ledger=ledger_from(options.ledger))
    app.check()
    return app


def run_to_the_end(serving: Coroutine[Any, Any, ExitCode]) -> ExitCode:
    """Run it on a loop of its own, and end the process when a handler's thread would not."""
    try:
        exit_code = run_loop(serving)
    except BaseException:
        _flush()
        raise
    if _has_threads_left_behind():
        # A blocking handler that was given up cannot be stopped, and Python would wait for it.
        _flush()
        os._exit(exit_code)
    return exit_code


async def _serve(app: App, options: RunOptions, report: Report) -> ExitCode:
    health = HealthOptions.from_addresses(options.health, options.control)
    async with app:
        dispatcher = app.dispatcher()
        async with app.serving_health(dispatcher, health):
            await pump_and_report(app, dispatcher, options, report)
    return ending_of(dispatcher)


async def pump_and_report(
    app: App, dispatcher: Dispatcher, options: RunOptions, report: Report
) -> None:
    """Pump until a signal, or whoever else drains the dispatcher, and tell the story."""
    started_s = SYSTEM_CLOCK.now_s()
    running = asyncio.create_task(
        run_until_signalled(dispatcher, until_empty=options.until_empty), name="run"
    )
    await breathe()  # Whoever reads that it runs may signal it: by now that is handled.
    report.started(app, options.target)
    try:
        await running
    finally:
        report.ended(app, dispatcher.performers, SYSTEM_CLOCK.now_s() - started_s)


def ending_of(dispatcher: Dispatcher) -> ExitCode:
    """The exit code of a dispatcher that has ended without an error."""
    return ExitCode.FORCED if dispatcher.was_stopped_now else ExitCode.OK


def _has_threads_left_behind() -> bool:
    end_s = SYSTEM_CLOCK.now_s() + _LINGER_S
    threads = [each for each in threading.enumerate() if each.name.startswith("pump-handler")]
    for thread in threads:
        thread.join(max(0.0, end_s - SYSTEM_CLOCK.now_s()))
    return any(thread.is_alive() for thread in threads)


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()

"""Running: what `pump run` does once its options are known."""

from __future__ import annotations

import asyncio
import os
import sys
import threading

import attrs

from ..app import App
from ..clock import SYSTEM_CLOCK, breathe
from ..dispatcher import Dispatcher
from ..signal_handling import run_until_signalled
from .exit_codes import ExitCode
from .loading import load_app, put_working_folder_first, shadowing_warnings
from .log_setup import set_up_logging
from .reports import Report, report_in

_LINGER_S = 0.5
"""How long threads that have nothing to do may take to notice that the app has closed."""


@attrs.frozen(kw_only=True)
class RunOptions:
    """The options of `pump run`."""

    target: str
    gateway: str | None = None
    concurrencies: tuple[tuple[str, int], ...] = ()
    until_empty: bool = False
    log_level: str = "info"
    log_format: str = "auto"

    def arguments(self) -> list[str]:
        """The options as a command line, for a process of its own."""
        return [
            "run",
            self.target,
            *(() if self.gateway is None else ("--gateway", self.gateway)),
            *(f"--concurrency={name}={count}" for name, count in self.concurrencies),
            *(("--until-empty",) if self.until_empty else ()),
            f"--log-level={self.log_level}",
            f"--log-format={self.log_format}",
        ]


def run_app(options: RunOptions) -> ExitCode:
    """Load, check and run the app; its errors are the caller's to turn into words."""
    report = report_in(set_up_logging(options.log_level, options.log_format))
    put_working_folder_first()
    for warning in shadowing_warnings():
        report.warn(warning)
    app = load_app(options.target)
    app.override(gateway=options.gateway, concurrency=dict(options.concurrencies))
    app.check()
    try:
        exit_code = asyncio.run(_serve(app, options, report))
    except BaseException:
        _flush()
        raise
    if _has_threads_left_behind():
        # A blocking handler that was given up cannot be stopped, and Python would wait for it.
        _flush()
        os._exit(exit_code)
    return exit_code


async def _serve(app: App, options: RunOptions, report: Report) -> ExitCode:
    async with app:
        dispatcher = app.dispatcher()
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
    return _ending(dispatcher)


def _ending(dispatcher: Dispatcher) -> ExitCode:
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

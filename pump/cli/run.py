"""`pump run`: an app, until it is told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any, Final

import attrs
import click

from ..app import App
from ..clock import SYSTEM_CLOCK, yield_to_loop
from ..dispatcher import Dispatcher
from ..event_loop import run as run_loop, run_until_signalled
from ..exit_codes import ExitCode, Failure, exit_code_of
from ..health.options import HealthOptions
from ..http.wire import Refused
from ..loading import load_app, put_working_folder_first, shadowing_warnings
from ..observability.metrics import serving_metrics
from ..processes.control import WorkersProbes, serving_workers
from ..processes.ipc import DesiredStates, RunOptions, WorkerStart
from ..processes.supervisor import Supervisor
from ..processes.worker_process import WorkerProcess, boot_command
from .console import print_warning, stderr
from .options import (
    concurrencies_option,
    control_option,
    gateway_option,
    health_option,
    log_format_option,
    log_level_option,
    log_sample_option,
    telemetry_choice,
    telemetry_of,
    telemetry_option,
    until_empty_option,
)
from .run_report import RunReport, report_in, summarize, warnings_of
from .session import set_up_logging
from .settings import EnvironmentSettings

# Running: what `pump run` does once its options are known.

_LINGER_S = 0.5
"""How long threads that have nothing to do may take to notice that the app has closed."""
_END_S = 3.0
"""How long threads may outlive a program that an error has ended."""


def run_app(options: RunOptions) -> ExitCode:
    """Load, check and run the app; its errors are the caller's to turn into words."""
    format = set_up_logging(options.log_level, options.log_format, sample=options.log_sample)
    report = report_in(format)
    app = loaded_app(options, report)
    return run_to_the_end(_serve(app, options, report))


def loaded_app(options: RunOptions, report: RunReport, *, serves_metrics: bool = True) -> App:
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
    except BaseException as error:
        _flush()
        _end_in_time(error.code if isinstance(error, SystemExit) else exit_code_of(error))
        raise
    if _has_threads_left_behind():
        # A blocking handler that was given up cannot be stopped, and Python would wait for it.
        _flush()
        os._exit(exit_code)
    return exit_code


async def _serve(app: App, options: RunOptions, report: RunReport) -> ExitCode:
    health = HealthOptions.from_addresses(options.health, options.control)
    async with app:
        dispatcher = app.dispatcher()
        async with app.serving_health(dispatcher, health):
            await pump_and_report(app, dispatcher, options, report)
    return exit_code_of_run(dispatcher)


async def pump_and_report(
    app: App, dispatcher: Dispatcher, options: RunOptions, report: RunReport
) -> None:
    """Pump until a signal or another drain of the dispatcher, and report start and end."""
    started_s = SYSTEM_CLOCK.now_s()
    running = asyncio.create_task(
        run_until_signalled(dispatcher, until_empty=options.until_empty), name="run"
    )
    await yield_to_loop()  # Once it is reported to run it may be signalled: by now that is handled.
    report.started(app, options.target)
    try:
        await running
    finally:
        report.ended(app, dispatcher.performers, SYSTEM_CLOCK.now_s() - started_s)


def exit_code_of_run(dispatcher: Dispatcher) -> ExitCode:
    """The exit code of a dispatcher that has ended without an error."""
    return ExitCode.FORCED if dispatcher.was_stopped_now else ExitCode.OK


def _has_threads_left_behind() -> bool:
    end_s = SYSTEM_CLOCK.now_s() + _LINGER_S
    threads = [each for each in threading.enumerate() if each.name.startswith("pump-handler")]
    for thread in threads:
        thread.join(max(0.0, end_s - SYSTEM_CLOCK.now_s()))
    return any(thread.is_alive() for thread in threads)


def _end_in_time(code: object) -> None:
    """Python waits for every thread at its end, also for one of a gateway that could not be closed
    because what ended the program interrupted that too.
    """

    def end() -> None:
        threading.main_thread().join()
        threading.Event().wait(_END_S)
        _flush()
        os._exit(code if isinstance(code, int) else ExitCode.UNEXPECTED if code else ExitCode.OK)

    threading.Thread(target=end, name="end in time", daemon=True).start()


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


# Process count: how many processes `--processes` means.

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""What a container may use, where the kernel has cgroups of version 2."""


def process_count(text: str | int) -> int:
    """A number of 1 or more, or `auto` (or 0) for as many as this process may use cores."""
    words = str(text).strip().lower()
    if words == "auto":
        return usable_cores()
    if not words.isascii() or not words.isdecimal():
        raise click.BadParameter(f"{text!r} is not a whole number; write 4, or auto for all cores")
    return int(words) or usable_cores()


def usable_cores() -> int:
    """The cores that this process may run on, or fewer when it is allowed less time than that."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    try:
        quota = quota_in(_QUOTA.read_text(encoding="ascii"))
    except (OSError, ValueError):
        quota = None
    return cores if quota is None else max(1, min(cores, ceil(quota)))


def quota_in(text: str) -> float | None:
    """Of a `cpu.max`, how many cores' time it allows; None for no limit."""
    allowed, period = text.split()
    return None if allowed == "max" else int(allowed) / int(period)


@click.command(short_help="Run an app until it is told to stop.")
@click.argument("target", metavar="MODULE:APP")
@click.option(
    "--reload",
    is_flag=True,
    help="Drain and restart when a *.py file below this folder changes; for development.",
)
@until_empty_option
@concurrencies_option()
@click.option(
    "--processes",
    type=process_count,
    metavar="N",
    help="Run the app in N processes, to use N cores; auto (or 0) is as many as there are. One "
    "that dies is restarted, and SIGHUP restarts all, one after the other.",
)
@gateway_option
@health_option
@control_option
@telemetry_option
@click.option(
    "--ledger",
    metavar="PATH",
    help="Keep a row for every outcome, in a SQLite file (PATH.db) or in Parquet files in a folder "
    "(PATH); `pump ledger` shows it.",
)
@log_level_option
@log_format_option
@log_sample_option
def run(
    target: str,
    *,
    reload: bool,
    until_empty: bool,
    concurrencies: tuple[tuple[str, int], ...],
    processes: int | None,
    gateway: str | None,
    health: str | None,
    control: str | None,
    telemetry: tuple[str, ...],
    ledger: str | None,
    log_level: str,
    log_format: str,
    log_sample: int,
) -> ExitCode:
    """Run the app that MODULE:APP names, such as orders:app, until it is told to stop.

    The first SIGTERM or Ctrl-C drains: nothing more is received, what was started finishes, what
    was not is handed back. The second one stops at once. Logs go to stderr, one line a delivery;
    the summary at the end goes to stdout, or to the log when that is JSON.

    \b
    Examples:
      pump run app:app
      pump run shop.orders:app --concurrency orders=50 --log-level warning
      pump run app:app --gateway local:///var/lib/shop/queues
      pump run app:app --log-sample 100         (thousands of messages a second)
      pump run app:app --until-empty            (a batch job)
      pump run app:app --reload                 (while developing)
      pump run app:app --processes auto         (a process a core)
      pump run app:app --health 0.0.0.0:8080 --control 9091
      pump run app:app --ledger .pumphouse/ledger.db
      pump run app:app --telemetry otlp --telemetry prometheus:9464

    \b
    Exit codes:
      0 drained   1 unexpected error   2 wrong usage   3 the app cannot work
      4 broker unreachable or queue missing   5 too many unacceptable messages
      130 stopped by a second signal
    """
    from ..processes.ipc import RunOptions

    options = RunOptions(
        target=target,
        gateway=gateway,
        concurrencies=concurrencies,
        until_empty=until_empty,
        health=health,
        control=control,
        telemetry=telemetry,
        ledger=ledger,
        log_level=log_level,
        log_format=log_format,
        log_sample=log_sample,
    )
    if reload and processes is not None and processes > 1:
        raise click.UsageError(
            "--reload runs one process, and drains it at each change; leave --processes out, or "
            "leave --reload out and send SIGHUP after a change"
        )
    if reload:
        return run_and_reload(options)
    if processes is not None:
        return run_processes(options, processes)
    return run_app(options)


# Supervising: what `pump run --processes N` does once its options are known.
#
# | signal             | does                                                                      |
# |--------------------|---------------------------------------------------------------------------|
# | SIGTERM or SIGINT  | drains every process; the second stops them, the third kills them         |
# | SIGHUP             | restarts them one after the other; drains when it means that the terminal |
# |                    | has been closed                                                           |
#
# One process loads no code of the app, and so outlasts its versions: this one.

_STANDARD_STREAMS: Final = (0, 1, 2)


def run_processes(options: RunOptions, count: int) -> ExitCode:
    """Run the app in so many processes, until a signal, or until they end by themselves."""
    if os.name != "posix":
        raise Failure("--processes needs Linux, macOS or another Unix", remedy="leave it out")
    format = set_up_logging(options.log_level, options.log_format)
    # "auto" was decided by looking at our stderr, and theirs is the same.
    return asyncio.run(_supervise(attrs.evolve(options, log_format=format), count))


async def _supervise(options: RunOptions, count: int) -> ExitCode:
    started_s = SYSTEM_CLOCK.now_s()
    starter = Starter(options)
    supervisor = Supervisor(starter.start, count, SYSTEM_CLOCK, until_empty=options.until_empty)
    health = HealthOptions.from_addresses(options.health, options.control)
    terminal = _Terminal()
    with _signals(supervisor, terminal):
        async with (
            serving_workers(supervisor, health, SYSTEM_CLOCK) as probes,
            _serving_metrics(probes, options),
        ):
            exit_code = await supervisor.run()
    if not terminal.is_lost():  # Else there is no reader.
        _tell(supervisor, SYSTEM_CLOCK.now_s() - started_s, options.log_format)
    return exit_code


class Starter:
    """Starts processes; the first of all announces the start."""

    def __init__(self, options: RunOptions) -> None:
        # What is served for all is served here.
        self._options = attrs.evolve(options, health=None, control=None)
        self._has_announcer = False

    async def start(self, number: int, desired: DesiredStates) -> WorkerProcess:
        worker_start = WorkerStart(
            number=number,
            announces_start=not self._has_announcer,
            options=self._options,
            # Not a copy: orders given while the process is made are to be part of it, too.
            desired=desired,
        )
        self._has_announcer = True
        return await WorkerProcess.start(worker_start, SYSTEM_CLOCK)


@asynccontextmanager
async def _serving_metrics(probes: WorkersProbes, options: RunOptions) -> AsyncIterator[None]:
    choice = telemetry_choice(options.telemetry)
    if choice.port is None:
        yield
        return
    async with serving_metrics(partial(_metrics_or_none, probes), choice.host, choice.port):
        yield


async def _metrics_or_none(probes: WorkersProbes) -> bytes:
    try:
        return await probes.metrics()
    except Refused:
        return b""  # No process has started yet.


def _tell(supervisor: Supervisor, run_s: float, format: str) -> None:
    done = supervisor.tally
    if not done.counts:
        return  # None has come so far as to have anything to tell.
    summarize(done.counts, run_s, format)
    report = report_in(format)
    for warning in warnings_of(discarded=done.discarded, spilled=done.spilled):
        report.warn(warning)


class _Terminal:
    """The terminal that this was started on, if it was."""

    def __init__(self) -> None:
        self._streams = [each for each in _STANDARD_STREAMS if os.isatty(each)]

    def is_lost(self) -> bool:
        """Whether it has been closed since."""
        return bool(self._streams) and not any(map(os.isatty, self._streams))


@contextmanager
def _signals(supervisor: Supervisor, terminal: _Terminal) -> Iterator[None]:
    has_been_told = False

    def end() -> None:
        nonlocal has_been_told
        if has_been_told:
            supervisor.stop_now()
        else:
            supervisor.drain()
        has_been_told = True

    def hang_up() -> None:
        if not terminal.is_lost():
            supervisor.restart()
        elif not has_been_told:
            end()  # Once: of one terminal that is closed both the shell and the system tell.

    loop = asyncio.get_running_loop()
    handlers = {signal.SIGTERM: end, signal.SIGINT: end, signal.SIGHUP: hang_up}
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)


# Reload: the app in a process of its own, drained and started anew when its code changes.

_TOLD_TO_END = (ExitCode.OK, ExitCode.FORCED)
_MAX_NAMED = 3


def run_and_reload(options: RunOptions) -> ExitCode:
    """Run the app, and again after each change, until a signal; its last exit code is ours."""
    try:
        import watchfiles  # noqa: F401
    except ImportError:
        raise Failure(
            "--reload needs the package watchfiles", remedy="pip install 'pumphouse[reload]'"
        ) from None
    return asyncio.run(_Reloader(options).run())


class _Reloader:
    """Keeps one child. Waiting for a change, it ends at a signal; so does a child told to end.

    Signals are passed on: the first drains the child, unless a change drains it already, and
    the second stops it.
    """

    def __init__(self, options: RunOptions) -> None:
        self._options = options
        self._child: asyncio.subprocess.Process | None = None
        self._is_draining = False
        self._end_asked = asyncio.Event()

    async def run(self) -> ExitCode:
        with _on_signals(self._end):
            async with aclosing(_changes()) as changes:
                while True:
                    # Watching begins before the child does, so that no change is missed.
                    change = asyncio.ensure_future(anext(changes))
                    await asyncio.wait([change], timeout=0)
                    code = await self._run_child_until(change)
                    if not change.done():
                        await self._wait_for(change, code)
                    if not change.done() or self._end_asked.is_set():
                        change.cancel()
                        await asyncio.wait([change])
                        return _as_exit_code(code)
                    stderr().print(f"reloading: {change.result()} changed", soft_wrap=True)

    async def _run_child_until(self, change: asyncio.Future[str]) -> int:
        child = self._child = await self._start_child()
        self._is_draining = False
        if self._end_asked.is_set():
            self._drain()  # Told while there was no child to pass it on to.
        try:
            ended = asyncio.ensure_future(child.wait())
            await _first_of(ended, change)
            self._drain()
            return await ended
        finally:
            if child.returncode is None:
                child.kill()

    async def _start_child(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *boot_command("pump.cli"),
            *_shown(self._options).arguments(),
            stdin=asyncio.subprocess.DEVNULL,
            # Ctrl-C on a terminal must reach the child through us, once.
            start_new_session=True,
        )

    async def _wait_for(self, change: asyncio.Future[str], code: int) -> None:
        """After a child that failed, wait for a change that may help, or for a signal."""
        if code in _TOLD_TO_END or self._end_asked.is_set():
            return
        print_warning(f"the app ended with exit code {code}; waiting for a change")
        end = asyncio.ensure_future(self._end_asked.wait())
        await _first_of(end, change)
        end.cancel()

    def _end(self) -> None:
        if self._end_asked.is_set():
            self._terminate()
        self._end_asked.set()
        self._drain()

    def _drain(self) -> None:
        if not self._is_draining:
            self._is_draining = True
            self._terminate()

    def _terminate(self) -> None:
        if self._child is not None and self._child.returncode is None:
            self._child.terminate()


def _shown(options: RunOptions) -> RunOptions:
    """Without what the child finds in its environment: a gateway's URL may hold a password, and
    any user can read a command line.
    """
    is_known = options.gateway == EnvironmentSettings.from_environment().gateway
    return attrs.evolve(options, gateway=None) if is_known else options


async def _first_of(*futures: asyncio.Future[Any]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


async def _changes() -> AsyncGenerator[str, None]:
    from watchfiles import PythonFilter, awatch

    folder = Path.cwd()
    async for batch in awatch(folder, watch_filter=PythonFilter()):
        names = sorted({Path(path).relative_to(folder).as_posix() for _, path in batch})
        more = ", …" if len(names) > _MAX_NAMED else ""
        yield ", ".join(names[:_MAX_NAMED]) + more


@contextmanager
def _on_signals(call: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    # SIGHUP: the child has a session of its own, and would outlive the terminal.
    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    for each in signals:
        loop.add_signal_handler(each, call)
    try:
        yield
    finally:
        for each in signals:
            loop.remove_signal_handler(each)


def _as_exit_code(code: int) -> ExitCode:
    if code == -signal.SIGTERM:
        return ExitCode.OK  # Told to drain before it had anything in flight.
    return ExitCode(code) if code in set(ExitCode) else ExitCode.UNEXPECTED

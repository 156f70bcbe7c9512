"""Supervising: what `pump run --processes N` does once its options are known.

| signal             | does                                                                      |
|--------------------|---------------------------------------------------------------------------|
| SIGTERM or SIGINT  | drains every process; the second stops them, the third kills them         |
| SIGHUP             | restarts them one after the other; drains when it means that the terminal |
|                    | has been closed                                                           |

One process loads no code of the app, and so outlasts its versions: this one.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import attrs

from ..clock import SYSTEM_CLOCK
from ..health.crew_probes import CrewProbes
from ..health.options import HealthOptions
from ..health.crew_serving import serving_crew
from ..health.standing import Standing
from ..health.wire import Refused
from ..observability.metrics_server import MetricsServer
from .exit_codes import ExitCode
from .failure import Failure
from .intercom import Letter
from .log_setup import set_up_logging
from .pump_process import ANSWER_S, PumpProcess
from .reports import report_in, summarize, warnings_of
from .run_options import RunOptions
from .supervisor import Supervisor
from .telemetry import telemetry_choice

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
            serving_crew(supervisor, health, SYSTEM_CLOCK) as probes,
            _serving_metrics(probes, options),
        ):
            exit_code = await supervisor.run()
    if not terminal.is_lost():  # Else nobody is there to read it.
        _tell(supervisor, SYSTEM_CLOCK.now_s() - started_s, options.log_format)
    return exit_code


class Starter:
    """Starts processes; the first of all is the spokesman."""

    def __init__(self, options: RunOptions) -> None:
        # What is served for all is served here.
        self._options = attrs.evolve(options, health=None, control=None)
        self._has_spokesman = False

    async def start(self, number: int, standing: Standing) -> PumpProcess:
        letter = Letter(
            number=number,
            is_spokesman=not self._has_spokesman,
            options=self._options,
            # Not a copy: what is asked while the process is made is to be in its letter, too.
            standing=standing,
        )
        self._has_spokesman = True
        return await PumpProcess.start(letter, SYSTEM_CLOCK)


@asynccontextmanager
async def _serving_metrics(probes: CrewProbes, options: RunOptions) -> AsyncIterator[None]:
    choice = telemetry_choice(options.telemetry)
    if choice.port is None:
        yield
        return
    loop = asyncio.get_running_loop()

    def text() -> bytes:
        asking = asyncio.run_coroutine_threadsafe(_metrics_or_none(probes), loop)
        return asking.result(2 * ANSWER_S)

    server = MetricsServer(text, choice.host, choice.port)
    server.start()
    try:
        yield
    finally:
        await server.stop()


async def _metrics_or_none(probes: CrewProbes) -> bytes:
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

"""Serving locally: what `pump local` does once its options are known."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout, suppress
from functools import partial
from heapq import nlargest
from ipaddress import ip_address
from typing import TextIO

import attrs
import click
from rich.console import Console, Group, RenderableType

from ..clock import SYSTEM_CLOCK
from ..errors import ConfigurationError
from ..event_loop import loop_factory
from ..ports import QueueStats
from ..secret import Secret
from ..serving import MappingStats, QueueServer, ServerOptions, make_server
from .console import printable, stdout, table
from .exit_codes import ExitCode
from .loading import put_working_folder_first
from .log_setup import set_up_logging
from .settings import Settings
from .watching import queue_table

_REFRESH_S = 1.0
_LINGER_S = 2.0
_NO_QUEUES = "No queues yet: make one with an SDK, or start with --queue NAME."
_MAPPING_COLUMNS = ["queue", "function", "invoked", "succeeded", "failed", "filtered"]


def credentials_for(host: str, *, is_asked_for: bool) -> Mapping[str, Secret]:
    """The key that requests must be signed with; none where only this machine can ask."""
    if not is_asked_for and is_loopback(host):
        return {}
    settings = Settings.from_environment()
    if not (settings.aws_access_key_id and settings.aws_secret_access_key):
        option, value = ("--verify", "on") if is_asked_for else ("--host", host)
        raise ConfigurationError(
            option,
            value,
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to the pair that requests must be "
            "signed with",
        )
    return {settings.aws_access_key_id: settings.aws_secret_access_key}


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def serve(
    options: ServerOptions, *, log_level: str, log_format: str, as_json: bool = False
) -> ExitCode:
    """Serve until signalled. The first line on stdout says where, whatever functions print."""
    # On a terminal the table says what goes on; only what is wrong may come in between.
    has_table = stdout().is_terminal and not as_json
    level = "warning" if has_table and log_level == "info" else log_level
    set_up_logging(level, log_format)
    put_working_folder_first()
    # Messages make no cycles, and a million of them make Python's search for some expensive:
    # more than half of the time of filling a large backlog.
    gc.set_threshold(100_000, 50, 1_000)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        announce = partial(_announce, options, as_json, sys.stdout)
        announced = attrs.evolve(options, on_listening=announce)
        exit_code = runner.run(_serve(make_server(announced), has_table=has_table))
        _end_in_time(exit_code)
    return exit_code


def _end_in_time(exit_code: ExitCode) -> None:
    """Python waits for every thread at its end, also for those a function has left behind."""

    def end() -> None:
        sys.stdout.flush()
        os._exit(exit_code)

    timer = threading.Timer(_LINGER_S, end)
    timer.daemon = True
    timer.start()


async def _serve(server: QueueServer, *, has_table: bool) -> ExitCode:
    stop = _Stop()
    with stop.listening():
        if not await _open_unless(stop.asked, server):
            return ExitCode.OK
        try:
            await _show_until(stop.asked, server, has_table=has_table)
        finally:
            await server.aclose()
    return ExitCode.OK


def _announce(options: ServerOptions, as_json: bool, out: TextIO, endpoint: str) -> None:
    if as_json:
        data = None if options.data is None else str(options.data)
        click.echo(json.dumps({"endpoint": endpoint, "data": data, "pid": os.getpid()}), file=out)
    else:
        click.echo(f"listening on {endpoint}\n{_whereabouts(options)}", file=out)
    out.flush()


async def _open_unless(asked: asyncio.Event, server: QueueServer) -> bool:
    """Open the server; told to stop meanwhile, give up and return False."""
    opening = asyncio.create_task(_open(server), name="open the server")
    stopping = asyncio.create_task(asked.wait(), name="first signal")
    await asyncio.wait([opening, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if opening.done():
        opening.result()
        return True
    opening.cancel()
    await asyncio.wait([opening])
    return False


async def _open(server: QueueServer) -> None:
    # What the modules of functions print when they are imported: stdout begins with our line.
    with redirect_stdout(sys.stderr):
        await server.open()


def _whereabouts(options: ServerOptions) -> str:
    if options.data is None:
        return "in memory: everything is gone when this ends"
    return f"queues and messages are kept in {options.data}"


async def _show_until(asked: asyncio.Event, server: QueueServer, *, has_table: bool) -> None:
    console = stdout()
    if not has_table:
        await asked.wait()
        return
    from rich.live import Live

    shown: object = None
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while not asked.is_set():
            now = (server.queues(), server.mappings(), console.size)
            if now != shown:
                live.update(overview(*now[:2], max_rows=_rows_on(console)), refresh=True)
                shown = now
            with suppress(TimeoutError):
                async with SYSTEM_CLOCK.timeout(_REFRESH_S):
                    await asked.wait()
    console.print(overview(server.queues(), server.mappings(), max_rows=_rows_on(console)))


def _rows_on(console: Console) -> int:
    """How many queues fit beside the rest."""
    return max(5, console.size.height - 6)


def overview(
    queues: Sequence[QueueStats], mappings: Sequence[MappingStats], *, max_rows: int
) -> RenderableType:
    """The queues, and what the functions behind them did, as tables.

    Where there are too many queues, the fullest: this is drawn on the loop that serves, and a
    thousand rows would keep requests waiting.
    """
    parts: list[RenderableType] = ["", queue_table(_fullest(queues, max_rows), empty=_NO_QUEUES)]
    if len(queues) > max_rows:
        parts.append(f"… and {len(queues) - max_rows:,} more")
    if mappings:
        rows = [
            [
                printable(each.queue),
                printable(each.function),
                f"{each.invocations:,}",
                f"{each.succeeded:,}",
                f"{each.failed:,}",
                f"{each.filtered:,}",
            ]
            for each in mappings[:max_rows]
        ]
        parts += ["", table(_MAPPING_COLUMNS, rows, right=_MAPPING_COLUMNS[2:])]
    return Group(*parts)


def _fullest(queues: Sequence[QueueStats], max_count: int) -> Sequence[QueueStats]:
    if len(queues) <= max_count:
        return queues
    fullest = nlargest(max_count, queues, key=lambda q: q.visible + q.in_flight + q.delayed)
    return sorted(fullest, key=lambda q: q.name)


class _Stop:
    """What the signals said: the first asks, the second one ends the process at once."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    def listening(self) -> _Listening:
        return _Listening(self)

    def hear(self) -> None:
        if self.asked.is_set():
            # Whatever still runs, a thread in a function that hangs included: what was answered
            # is on the disk.
            sys.stdout.flush()
            os._exit(ExitCode.FORCED)
        self.asked.set()


class _Listening:
    """While it is entered, SIGTERM and SIGINT are heard."""

    def __init__(self, stop: _Stop) -> None:
        self._stop = stop

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, self._stop.hear)

    def __exit__(self, *exc_info: object) -> None:
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)

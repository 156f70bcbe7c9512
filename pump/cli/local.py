"""`pump local`: an SQS server on this machine."""

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
from pathlib import Path
from typing import TextIO

import attrs
import click
from rich.console import Console, Group, RenderableType

from ..clock import SYSTEM_CLOCK
from ..errors import ConfigurationError
from ..event_loop import loop_factory
from ..exit_codes import ExitCode
from ..loading import put_working_folder_first
from ..ports import QueueStats
from ..secret import Secret
from ..serving import (
    DEFAULT_PORT,
    KeptLeases,
    MappingStats,
    QueueServer,
    ServerOptions,
    make_server,
)
from .console import printable, stdout, table
from .options import log_format_option, log_level_option
from .queues import queue_table
from .session import set_up_logging
from .settings import EnvironmentSettings

DEFAULT_DATA = ".pumphouse/sqs"


@click.command(short_help="Serve SQS on this machine, durably.")
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", help="Default: 127.0.0.1.")
@click.option(
    "--port",
    "-p",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    help=f"0 for any that is free. Default: {DEFAULT_PORT}.",
)
@click.option(
    "--data",
    "-d",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_DATA,
    help=f"The folder that keeps queues and messages. Default: {DEFAULT_DATA}.",
)
@click.option("--memory", is_flag=True, help="Keep nothing: every start is empty.")
@click.option(
    "--queue",
    "-q",
    "queues",
    metavar="NAME",
    multiple=True,
    help="Make this queue unless it exists; NAME.fifo makes a FIFO queue. May be repeated.",
)
@click.option(
    "--config",
    "-c",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="Queues and event-source mappings, in YAML or TOML.",
)
@click.option(
    "--verify",
    is_flag=True,
    help="Require requests signed with $AWS_ACCESS_KEY_ID and $AWS_SECRET_ACCESS_KEY; always on "
    "when --host is not this machine alone.",
)
@click.option(
    "--allow-host",
    "allowed_hosts",
    metavar="NAME",
    multiple=True,
    help="Another name this server is reached by: requests to names that a web page could own "
    "are refused. May be repeated.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Refuse, as AWS does, to make a queue within 60 s of its deletion, or to purge twice.",
)
@click.option(
    "--keep-leases",
    "keeps_leases",
    type=click.Choice([each.value for each in KeptLeases]),
    default=KeptLeases.AFTER_CRASH.value,
    help="After which end of this server its clients still have what they had in flight: after a "
    "crash (default), always (a clean stop too), or never.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one line of JSON when it listens, and nothing else: for scripts.",
)
@log_level_option
@log_format_option
def local(
    *,
    host: str,
    port: int,
    data: Path,
    memory: bool,
    queues: tuple[str, ...],
    config: Path | None,
    verify: bool,
    allowed_hosts: tuple[str, ...],
    strict: bool,
    keeps_leases: str,
    as_json: bool,
    log_level: str,
    log_format: str,
) -> ExitCode:
    """Serve the SQS API on this machine: any AWS SDK, the AWS CLI and `sqs://` can use it.

    Every message a client was told is sent is on the disk, and survives a crash. On a terminal
    a table shows what is in each queue. The first SIGTERM or Ctrl-C lets requests and functions
    end; the second one stops at once, and still loses nothing.

    \b
    Examples:
      pump local --queue orders --queue orders-dead
      aws --endpoint-url http://127.0.0.1:9324 sqs list-queues
      pump local --config local.yaml            (queues, and functions that consume them)
      pump local --memory --port 0              (for a test run)
      pump local --port 0 --json                (for a script: {"endpoint": "http://…", …})

    \b
    Exit codes:
      0 stopped   1 unexpected error   2 wrong usage
      3 a setting cannot work, or the port is taken   4 the folder cannot be used
      130 stopped by a second signal
    """
    from ..serving import ServerOptions

    options = ServerOptions(
        host=host,
        port=port,
        data=None if memory else data,
        queues=queues,
        config=config,
        credentials=credentials_for(host, is_asked_for=verify),
        allowed_hosts=allowed_hosts,
        is_strict=strict,
        keeps_leases=KeptLeases(keeps_leases),
    )
    return serve(options, log_level=log_level, log_format=log_format, as_json=as_json)


# Serving locally: what `pump local` does once its options are known.

_REFRESH_S = 1.0
_LINGER_S = 2.0
_NO_QUEUES = "No queues yet: make one with an SDK, or start with --queue NAME."
_MAPPING_COLUMNS = ["queue", "function", "invoked", "succeeded", "failed", "filtered"]


def credentials_for(host: str, *, is_asked_for: bool) -> Mapping[str, Secret]:
    """The key that requests must be signed with; none where only this machine can ask."""
    if not is_asked_for and is_loopback(host):
        return {}
    settings = EnvironmentSettings.from_environment()
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

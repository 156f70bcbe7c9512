"""`pump local`: an SQS server on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from ..serving import DEFAULT_PORT, KeptLeases
from .exit_codes import ExitCode
from .options import log_format_option, log_level_option

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
    from .local_serving import credentials_for, serve

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

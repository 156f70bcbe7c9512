"""The root command: finds commands when they are asked for, and turns errors into exit codes."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

from .exit_codes import ExitCode, exit_code_of

_COMMANDS = {
    "new": "Start an app: code, a test that passes, a README.",
    "run": "Run an app until it is told to stop.",
    "send": "Send messages to a queue.",
    "queues": "Show what is in every queue.",
    "peek": "Look at messages without receiving them.",
    "purge": "Remove every message from a queue.",
    "spill": "Show or send what could not be dead-lettered.",
    "doctor": "Check this machine, and an app.",
    "local": "Serve SQS on this machine, durably.",
}
"""In the order of a first hour with Pumphouse. Each is defined in the module of its name."""


class Root(click.Group):
    """A group whose help loads no command, and whose errors are one line each."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f".{cmd_name}", __package__)
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            result = super().main(*args, **{**kwargs, "standalone_mode": False})
        except click.ClickException as error:
            _say(error)
            sys.exit(error.exit_code)
        except (click.Abort, KeyboardInterrupt):
            sys.exit(ExitCode.FORCED)
        except Exception as error:  # broad: whatever it is, it ends as an exit code
            from .complaints import complain

            complain(error)
            sys.exit(exit_code_of(error))
        sys.exit(result if isinstance(result, int) else ExitCode.OK)


def _say(error: click.ClickException) -> None:
    from .console import print_error

    print_error(error.format_message())
    if isinstance(error, click.UsageError) and error.ctx is not None:
        click.echo(f"try: {error.ctx.command_path} --help", err=True)


@click.group(
    cls=Root,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="pumphouse", message="pumphouse %(version)s")
def cli() -> None:
    """Pumphouse: handlers in, queues out, and nothing lost on the way.

    \b
    A first app in four commands:
      pump new greetings && cd greetings
      pump run app:app                              (in one terminal)
      pump send greetings '{"name": "Ada"}'         (in another one)
      pump queues

    Every command explains itself, with examples: pump run --help.
    """

"""The root command: finds commands when they are asked for, and turns errors into exit codes."""

from __future__ import annotations

import sys
from typing import Any

import click

from .exit_codes import ExitCode, exit_code_of
from .lazy_group import LazyGroup

_COMMANDS = {
    "new": "Start an app: code, a test that passes, a README.",
    "run": "Run an app until it is told to stop.",
    "control": "Pause, resume, scale or drain a running app.",
    "send": "Send messages to a queue.",
    "queues": "Show what is in every queue.",
    "peek": "Look at messages without receiving them.",
    "purge": "Remove every message from a queue.",
    "spill": "Show or send what could not be dead-lettered.",
    "ledger": "Show what became of messages.",
    "report": "Analyse outcomes and dead letters.",
    "redrive": "Send selected dead letters again.",
    "spark": "Run, report and redrive on a Spark cluster.",
    "bench": "Measure an app on a gateway.",
    "doctor": "Check this machine, and an app.",
    "local": "Serve SQS on this machine, durably.",
}
"""In the order of a first hour with Pumphouse. Each is defined in the module of its name."""


class Root(LazyGroup):
    """A group whose errors are one line each. Behind its own commands come those of plugins, which
    never stand in front of one.
    """

    commands_help = _COMMANDS

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, _ in self._described()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.commands_help:
            return super().get_command(ctx, cmd_name)
        from .plugins import load, plugins

        point = plugins().get(cmd_name)
        return None if point is None else load(point)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(self._described())

    def _described(self) -> list[tuple[str, str]]:
        from .plugins import plugins, short_help_of

        brought = [
            (name, short_help_of(point))
            for name, point in plugins().items()
            if name not in self.commands_help
        ]
        return [*self.commands_help.items(), *brought]

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            result = super().main(*args, **{**kwargs, "standalone_mode": False})
        except click.ClickException as error:
            if _is_help(error):
                click.echo(error.format_message(), err=True)
            else:
                _say(error)
            sys.exit(error.exit_code)
        except (click.Abort, KeyboardInterrupt):
            sys.exit(ExitCode.FORCED)
        except Exception as error:  # broad: whatever it is, it ends as an exit code
            from .complaints import complain

            complain(error)
            sys.exit(exit_code_of(error))
        sys.exit(result if isinstance(result, int) else ExitCode.OK)


def _is_help(error: click.ClickException) -> bool:
    """Whether a group was named and no command of it, which click 8.2 answers with an error."""
    kind = getattr(click.exceptions, "NoArgsIsHelpError", None)
    return kind is not None and isinstance(error, kind)


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

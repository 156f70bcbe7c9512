"""The root command: finds commands when they are asked for, and turns errors into exit codes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import click

from ..exit_codes import ExitCode, exit_code_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class LazyGroup(click.Group):
    """Its help loads no command, and a command is loaded when it is asked for.

    Each is defined in the module of its name.
    """

    commands_help: ClassVar[Mapping[str, str]] = {}
    """What the help says of each, in its order."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands_help)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands_help:
            return None
        module = import_module(f".{cmd_name}", __package__)
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.commands_help.items()))


# Plugins: commands that other packages bring, found by entry points and loaded when asked for.
#
# A gateway may have commands of its own, and `pump` imports no gateway. So the help knows their
# names and loads nothing, and one that does not load is an error of the command that needs it, and
# of no other.

ENTRY_POINT_GROUP = "pumphouse.commands"
_KNOWN = {"s3": "Estimate what queues on S3 cost."}
"""What the help says of those that come with Pumphouse: to ask them, it would have to load them."""


def plugins() -> dict[str, EntryPoint]:
    """The commands of other packages by name, in the order of their names."""
    from importlib.metadata import entry_points

    found = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    return dict(sorted(found.items()))


def short_help_of(point: EntryPoint) -> str:
    """What the list of commands says of it."""
    return _KNOWN.get(point.name) or f"A command of {_package_of(point)}."


def load(point: EntryPoint) -> click.Command:
    """The command. `ConfigurationError` when its package is broken, with the remedy."""
    from ..errors import ConfigurationError

    field = f"pump {point.name}"
    remedy = f"repair or remove the package {_package_of(point)}, which brings this command"
    try:
        command = point.load()
    except Exception as error:  # broad: whatever a foreign module raises when it is imported
        raise ConfigurationError(
            field, point.value, f"{type(error).__name__}: {error}; {remedy}"
        ) from error
    if not isinstance(command, click.Command):
        raise ConfigurationError(field, point.value, f"it is no click command; {remedy}")
    return command


def _package_of(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.module


_COMMANDS = {
    "new": "Start an app: code, a test that passes, a README.",
    "run": "Run an app until it is told to stop.",
    "control": "Pause, resume, scale or drain a running app.",
    "send": "Send messages to a queue.",
    "queues": "Show what is in every queue.",
    "peek": "Look at messages without receiving them.",
    "purge": "Remove every message from a queue.",
    "spill": "Show or send what could not be dead-lettered.",
    "relay": "Send what waits in an app's outbox.",
    "outbox": "Show what waits in an app's outbox.",
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

        point = plugins().get(cmd_name)
        return None if point is None else load(point)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(self._described())

    def _described(self) -> list[tuple[str, str]]:
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
            from .console import complain

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

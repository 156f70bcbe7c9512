"""A group whose help loads no command, and whose commands are loaded when they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import ClassVar

import click


class LazyGroup(click.Group):
    """Each command is defined in the module of its name, behind `prefix`."""

    commands_help: ClassVar[Mapping[str, str]] = {}
    """What the help says of each, in its order."""
    prefix: ClassVar[str] = ""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands_help)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands_help:
            return None
        module = import_module(f".{self.prefix}{cmd_name}", __package__)
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.commands_help.items()))

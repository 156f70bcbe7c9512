"""docs/cli.md names every command, option, variable and exit code there is."""

import re
from collections.abc import Iterator
from pathlib import Path

import click

from pump.cli import settings
from pump.cli.root import cli
from pump.exit_codes import ExitCode
from tests.together import together

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
SECTIONS = {
    section.split("\n", 1)[0]: section for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)
}

VARIABLES = (
    settings.GATEWAY,
    settings.LOG_LEVEL,
    settings.LOG_FORMAT,
    settings.LOG_SAMPLE,
    settings.HEALTH,
    settings.CONTROL,
    "NO_COLOR",
)


def options() -> Iterator[tuple[str, str, str]]:
    """Every command, its subcommand or itself, and every long option of that."""
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        nested = command.commands if isinstance(command, click.Group) else {}
        for subname, each in {name: command, **nested}.items():
            for parameter in each.params:
                if isinstance(parameter, click.Option):
                    yield name, subname, max(parameter.opts, key=len)


def test_every_option_is_documented() -> None:
    shared = {"--app", "--gateway", "--json"}
    with together() as each:
        for command, subcommand, option in sorted(set(options())):
            # `pump spark report` has the options of `pump report`, and says so.
            section = SECTIONS[f"pump {command}"] + SECTIONS.get(f"pump {subcommand}", "")
            with each(f"pump {command} {subcommand} {option}"):
                is_there = option in (PAGE if option in shared else section)
                assert is_there, "not in docs/cli.md"


def test_every_exit_code_is_documented() -> None:
    with together() as each:
        for code in ExitCode:
            with each(code.name):
                is_there = f"| {code.value} |" in SECTIONS["Exit codes"]
                assert is_there, "not in docs/cli.md"


def test_every_variable_is_documented() -> None:
    with together() as each:
        for variable in VARIABLES:
            with each(variable):
                is_there = f"| `{variable}` |" in PAGE
                assert is_there, "not in docs/cli.md"

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from .conftest import Pump
from .programs import PATIENCE_S, pump as run_pump

COMMANDS = (
    *("new", "run", "control", "send", "queues", "peek", "purge", "spill", "ledger", "doctor"),
    *("bench", "relay", "outbox"),
)


def test_the_help_names_every_command(pump: Pump) -> None:
    result = pump("--help")

    assert result.exit_code == 0
    assert all(f"\n  {command} " in result.stdout for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_teaches_by_examples(pump: Pump, command: str) -> None:
    result = pump(command, "--help")

    assert result.exit_code == 0
    assert f"Examples:\n    pump {command}" in result.stdout


def test_the_short_help_of_a_command_is_the_one_in_the_list(pump: Pump) -> None:
    listed = pump("--help").stdout

    for command in COMMANDS:
        module = __import__(f"pump.cli.{command}", fromlist=[command])
        assert getattr(module, command).short_help in listed


@pytest.mark.timeout(120)
def test_the_help_loads_nothing_heavy() -> None:
    program = (
        "import sys; sys.argv = ['pump', '--help']\n"
        "from pump.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'asyncio', 'rich', 'structlog', 'attrs', 'msgspec', 'cattrs', 'pump.app'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )

    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE_S)


def test_the_version_is_that_of_the_package(pump: Pump) -> None:
    assert pump("--version").stdout == f"pumphouse {version('pumphouse')}\n"


@pytest.mark.parametrize("group", [[], ["spill"], ["control"], ["spark"]])
def test_a_group_without_a_command_shows_its_help(pump: Pump, group: list[str]) -> None:
    result = pump(*group)

    assert result.output == pump(*group, "--help").output
    assert "\nCommands:\n  " in result.output


def test_when_a_command_is_unknown_then_it_is_a_usage_error(pump: Pump) -> None:
    result = pump("snd")

    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert "try: pump --help" in result.stderr


def test_when_an_option_is_wrong_then_the_commands_help_is_named(pump: Pump) -> None:
    result = pump("queues", "--every", "5 apples")

    assert result.exit_code == 2
    assert "'5 apples' is not a duration" in result.stderr
    assert "try: pump queues --help" in result.stderr


@pytest.mark.timeout(120)
def test_the_module_can_be_run_as_the_command(folder: Path) -> None:
    result = run_pump("--version", folder=folder)

    assert (result.returncode, result.stdout.split()[0]) == (0, "pumphouse")

"""Commands of other packages: listed without being loaded, and nobody's trouble but their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from .conftest import Pump, Write
from .programs import PATIENCE_S

Install = Callable[[str, str], None]


@pytest.fixture
def install(folder: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> Install:
    """A package with an entry point `name = value`, as an installer leaves it."""
    monkeypatch.syspath_prepend(folder)

    def install(name: str, value: str) -> None:
        write(f"{name}_plugin-1.0.dist-info/METADATA", f"Name: {name}-plugin\nVersion: 1.0\n")
        entry = f"[pumphouse.commands]\n{name} = {value}\n"
        write(f"{name}_plugin-1.0.dist-info/entry_points.txt", entry)

    return install


def test_when_a_package_brings_a_command_then_pump_has_it(
    pump: Pump, write: Write, install: Install
) -> None:
    write(
        "weighing.py",
        """
        import click

        @click.command()
        def weigh() -> None:
            click.echo("42 kg")
        """,
    )
    install("weigh", "weighing:weigh")

    assert pump("weigh").stdout == "42 kg\n"
    assert "\n  weigh    A command of weigh-plugin.\n" in pump("--help").stdout


def test_when_a_plugin_is_broken_then_only_its_own_command_fails(
    pump: Pump, write: Write, install: Install
) -> None:
    write("breaking.py", "raise RuntimeError('half installed')")
    install("broken", "breaking:command")
    install("missing", "no_such_module:command")
    install("strange", "json:dumps")

    results = {name: pump(name) for name in ("broken", "missing", "strange")}

    assert {result.exit_code for result in results.values()} == {3}
    assert "half installed; repair or remove the package broken-plugin" in results["broken"].stderr
    assert "No module named 'no_such_module'" in results["missing"].stderr
    assert "it is no click command" in results["strange"].stderr
    assert pump("--help").exit_code == pump("queues").exit_code == 0


def test_when_a_plugin_has_the_name_of_a_command_then_the_command_stays(
    pump: Pump, write: Write, install: Install
) -> None:
    write("breaking.py", "raise RuntimeError('loaded')")
    install("queues", "breaking:command")

    assert pump("queues").exit_code == 0
    assert pump("--help").stdout.count("\n  queues ") == 1


@pytest.mark.timeout(120)
def test_when_pump_is_imported_or_asked_for_help_then_no_plugin_is_loaded() -> None:
    program = dedent(
        """
        import sys
        import pump
        sys.argv = ["pump", "--help"]
        from pump.cli import main
        try: main()
        except SystemExit: pass
        assert not [name for name in sys.modules if name.startswith("gateways")]
        """
    )

    result = subprocess.run(
        [sys.executable, "-c", program], check=True, timeout=PATIENCE_S, capture_output=True
    )

    assert b"\n  s3 " in result.stdout

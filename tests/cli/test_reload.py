"""`pump run --reload`: a change drains the app and starts it anew."""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from pump.cli.run import run_and_reload
from pump.clock import yield_to_loop
from pump.exit_codes import ExitCode
from pump.processes.ipc import RunOptions

from .conftest import GREETINGS, Pump, Write
from .local_queues import send
from .programs import pump as run_pump, running

pytestmark = pytest.mark.timeout(300)

RUN = ("run", "greeting:app", "--reload", "--log-format", "console")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_when_the_code_changes_then_the_app_is_drained_and_started_anew(
    greetings: Path, write: Write, folder: Path, number: signal.Signals
) -> None:
    with running(*RUN, folder=folder) as program:
        program.out.wait_for("Running.")

        # Of another length: Python tells a file that is a second younger by that only.
        write("greeting.py", GREETINGS.replace("Hello", "Good day"))

        program.err.wait_for("pump.drained")
        program.err.wait_for("reloading: greeting.py changed")
        program.out.wait_for("Running.")
        send(folder, '{"name": "Ada"}', queue="greetings")
        program.out.wait_for("Good day, Ada!")
        program.signal(number)
        assert program.wait() == 0


def test_when_the_change_breaks_the_app_then_it_waits_for_the_next_one(
    greetings: Path, write: Write, folder: Path
) -> None:
    with running(*RUN, folder=folder) as program:
        program.out.wait_for("Running.")

        write("greeting.py", "app = (")
        program.err.wait_for("SyntaxError")
        program.err.wait_for("ended with exit code 3; waiting for a change")
        write("greeting.py", GREETINGS)

        program.out.wait_for("Running.")
        program.signal()
        assert program.wait() == 0


def test_when_signalled_while_waiting_for_a_change_then_the_exit_code_is_the_apps(
    write: Write, folder: Path
) -> None:
    write("greeting.py", "app = (")
    with running(*RUN, folder=folder) as program:
        program.err.wait_for("waiting for a change")

        program.signal()

        assert program.wait() == 3


def test_when_its_terminal_is_closed_then_the_app_is_drained_and_nobody_is_left(
    greetings: Path, folder: Path
) -> None:
    with running(*RUN, folder=folder) as program:
        program.out.wait_for("Running.")

        program.signal(signal.SIGHUP)

        assert program.wait() == 0
        assert "Stopped after" in "\n".join(program.out.rest())


def test_when_signalled_while_the_app_is_being_started_then_it_is_told_as_well(
    greetings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = asyncio.create_subprocess_exec
    command: list[str] = []

    async def signal_and_start(*arguments: str, **options: Any) -> asyncio.subprocess.Process:
        command.extend(arguments)
        signal.raise_signal(signal.SIGTERM)
        for _ in range(10):  # It is heard before there is a child.
            await yield_to_loop()
        return await start(*arguments, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", signal_and_start)
    gateway = "memory://user:secret@name"
    monkeypatch.setenv("PUMP_GATEWAY", gateway)

    assert run_and_reload(RunOptions(target="greeting:app", gateway=gateway)) == ExitCode.OK
    assert "secret" not in " ".join(command), "the child reads the same variable"


def test_when_signalled_twice_then_the_app_is_stopped_at_once(write: Write, folder: Path) -> None:
    forever = "import asyncio; print('started', flush=True); await asyncio.Event().wait()"
    text = GREETINGS.replace('print(f"Hello, {request.name}!", flush=True)', forever)
    write("greeting.py", text)
    send(folder, '{"name": "Ada"}', queue="greetings")
    with running(*RUN, folder=folder) as program:
        program.out.wait_for("started")

        program.signal()
        program.err.wait_for("drain.started")
        program.signal()

        assert program.wait() == 130


def test_when_the_app_ends_by_itself_then_so_does_the_command(
    greetings: Path, folder: Path
) -> None:
    assert run_pump(*RUN, "--until-empty", folder=folder).returncode == 0


def test_when_watchfiles_is_not_installed_then_the_cure_is_said(
    pump: Pump, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)

    result = pump("run", "greeting:app", "--reload")

    assert result.exit_code == 3
    assert "pip install 'pumphouse[reload]'" in result.stderr

"""`pump run --reload`: a change drains the app and starts it anew."""

import signal
import sys
from pathlib import Path

import pytest

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

        write("greeting.py", GREETINGS.replace("Hello", "Howdy"))

        program.err.wait_for("pump.drained")
        program.err.wait_for("reloading: greeting.py changed")
        program.out.wait_for("Running.")
        send(folder, '{"name": "Ada"}', queue="greetings")
        program.out.wait_for("Howdy, Ada!")
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

"""On a terminal: questions are asked, colours are shown; `--watch` goes on until Ctrl-C."""

import json
import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from .local_queues import send, visible_count
from .programs import PATIENCE_S, PUMP, environment, pump, running

pytestmark = pytest.mark.timeout(300)


def on_a_terminal(*arguments: str, folder: Path, typed: str = "", **env: str) -> tuple[int, str]:
    """Run a command with a terminal for all its streams; return exit code and output."""
    ours, theirs = pty.openpty()
    os.write(ours, typed.encode())
    process = subprocess.Popen(
        [*PUMP, *arguments],
        cwd=folder,
        env=environment(TERM="xterm-256color", **env),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    output = b""
    try:
        while chunk := _read(ours):
            output += chunk
        return process.wait(PATIENCE_S), output.decode()
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65_536)
    except OSError:  # Linux says EIO when the other side has closed the terminal.
        return b""


@pytest.mark.parametrize(("answer", "code", "left"), [("y", 0, 0), ("n", 130, 1)])
def test_purge_asks_and_does_as_it_is_told(folder: Path, answer: str, code: int, left: int) -> None:
    send(folder, "{}", queue="orders")

    exit_code, output = on_a_terminal("purge", "orders", folder=folder, typed=f"{answer}\n")

    assert "Remove every message from 'orders' on local:// for good?" in output
    assert (exit_code, visible_count(folder, "orders")) == (code, left)


def test_errors_are_coloured_on_a_terminal_and_plain_when_piped(folder: Path) -> None:
    _, on_screen = on_a_terminal("peek", "orders", folder=folder)
    piped = pump("peek", "orders", folder=folder).stderr

    assert "\x1b[" in on_screen
    assert "\x1b[" not in piped
    assert piped.startswith("error: queue 'orders' does not exist")


def test_when_no_color_is_set_then_there_is_none(folder: Path) -> None:
    _, on_screen = on_a_terminal("peek", "orders", folder=folder, NO_COLOR="1")

    assert "\x1b[3" not in on_screen


def test_watch_prints_a_line_a_look_until_ctrl_c(folder: Path) -> None:
    send(folder, "{}", queue="orders")

    with running("queues", "--watch", "--every", "10ms", "--json", folder=folder) as program:
        first = program.out.wait_for("orders")
        program.out.wait_for("orders")
        program.signal(signal.SIGINT)

        assert program.wait() == 0
    assert json.loads(first)[0]["visible"] == 1

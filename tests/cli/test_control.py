"""`pump run --health --control` as a process, and `pump control` against it."""

import asyncio
import json
import os
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from pump.processes.ipc import RunOptions

from .conftest import Pump, Write
from .local_queues import send, visible_count
from .programs import Program, pump as run_pump, running

pytestmark = pytest.mark.timeout(300)

ADA = '{"name": "Ada"}'
SLOW = """
from pump import App, Command, Subscription

app = App("local://")

class Work(Command):
    name: str

@app.handler
def work(request: Work) -> None:
    print("started", flush=True)
    open("gate").read()

app.subscribe(Subscription(queue="work", request=Work, concurrency=1, prefetch=0))
"""


def address(program: Program, event: str) -> str:
    """Where an endpoint is served, as the log says."""
    found = json.loads(program.err.wait_for(f'"{event}"'))["address"]
    assert isinstance(found, str)
    return found


def get(url: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(url) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        with closing(error):
            return error.code, json.load(error)


@contextmanager
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


# -- as a process -------------------------------------------------------------------------------


def test_when_signalled_then_it_is_not_ready_while_it_drains_and_the_exit_code_is_0(
    write: Write, folder: Path
) -> None:
    # given a handler that has started and waits for the test to open a pipe
    write("app.py", SLOW)
    os.mkfifo(folder / "gate")
    send(folder, ADA, queue="work")
    options = ("--health", "0", "--log-format", "json")
    with running("run", "app:app", *options, folder=folder) as program:
        url = address(program, "health.served")
        program.out.wait_for("started")
        assert [get(f"{url}{path}")[0] for path in ("/livez", "/readyz")] == [200, 200]

        # when it is told to stop
        program.signal()
        program.err.wait_for("drain.started")

        # then it says so until it has drained
        status, found = get(f"{url}/readyz")
        assert (status, found["draining"]) == (503, True)
        assert get(f"{url}/livez")[0] == 200
        (folder / "gate").write_text("go")
        assert program.wait() == 0


def test_when_an_app_runs_then_it_can_be_paused_scaled_resumed_and_drained(
    greetings: Path, folder: Path
) -> None:
    variable = {"PUMP_CONTROL": f"unix:{folder}/pump.sock"}

    def control(*arguments: str) -> Any:
        done = run_pump("control", *arguments, "--json", folder=folder, env=variable)
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    with running(
        "run", "greeting:app", "--log-format", "json", folder=folder, env=variable
    ) as program:
        program.err.wait_for("control.served")
        program.err.wait_for("pump.started")
        assert control("status")["ready"] is True

        [paused] = control("pause", "greetings")
        [scaled] = control("scale", "greetings", "3")
        send(folder, ADA, queue="greetings")
        assert (paused["state"], scaled["concurrency"]) == ("paused", 3)
        assert visible_count(folder, "greetings") == 1

        control("resume", "greetings")
        program.out.wait_for("Hello, Ada!")
        [drained] = control("drain", "greetings", "--wait")
        assert (drained["state"], drained["counts"]["processed"]) == ("drained", 1)
        table = run_pump("control", "status", folder=folder, env=variable).stdout.splitlines()
        assert table[0].endswith(" · ready")
        assert table[-1].split()[:5] == ["greetings", "drained", "3", "0", "0"]

        assert control("drain", "--all", "--wait")["draining"] is True
        assert program.wait() == 0
    assert not (folder / "pump.sock").exists()


def test_when_the_port_is_taken_then_it_ends_with_3_and_says_which(
    greetings: Path, folder: Path
) -> None:
    with taken_port() as port:
        result = run_pump(
            "run", "greeting:app", "--health", str(port), "--until-empty", folder=folder
        )

    assert result.returncode == 3
    assert f"error: health='127.0.0.1:{port}': another program listens there" in result.stderr


def test_when_the_address_is_an_option_then_that_app_is_asked_and_unknown_names_are_told(
    greetings: Path, folder: Path
) -> None:
    at = f"unix:{folder}/pump.sock"
    options = ("--control", at, "--log-format", "json")
    with running("run", "greeting:app", *options, folder=folder) as program:
        program.err.wait_for("pump.started")
        unknown = run_pump("control", "pause", "nobody", "--at", at, folder=folder)
        assert unknown.returncode == 3
        assert "use one of greetings" in unknown.stderr

        paused = run_pump("control", "pause", "greetings", "--at", at, folder=folder)
        assert paused.returncode == 0
        assert paused.stdout.splitlines()[-1].split()[:2] == ["greetings", "paused"]
        program.signal()
        assert program.wait() == 0


# -- words --------------------------------------------------------------------------------------


def test_when_nobody_says_where_the_app_is_then_it_is_a_usage_error(pump: Pump) -> None:
    result = pump("control", "status")

    assert result.exit_code == 2
    assert "--at PORT or --at unix:PATH" in result.stderr
    assert "PUMP_CONTROL" in result.stderr


@pytest.mark.parametrize("at", ["unix:no.sock", "PORT"])
def test_when_no_app_is_there_then_the_remedy_is_named(pump: Pump, at: str) -> None:
    # Taken, so that no other program can be there, and not listened at.
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
        result = pump("control", "pause", "orders", "--at", port if at == "PORT" else at)

    assert result.exit_code == 3
    assert "pump run MODULE:APP --control PORT" in result.stderr


@pytest.mark.parametrize(
    "reply",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
    ],
)
def test_when_something_else_answers_then_that_is_said(pump: Pump, reply: bytes) -> None:
    async def serve_one() -> Any:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(100)
            writer.write(reply)
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            return await asyncio.to_thread(pump, "control", "status", "--at", str(port))
        finally:
            server.close()

    result = asyncio.run(serve_one())

    assert result.exit_code == 3
    assert "is not an app's control" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("drain", "--at", "1"),
        ("drain", "orders", "--all", "--at", "1"),
        ("pause", "--at", "1"),
        ("scale", "orders", "0", "--at", "1"),
        ("scale", "orders", "many", "--at", "1"),
        ("status", "--at", "0.0.0.0:1"),
        ("status", "--at", "somewhere"),
    ],
)
def test_when_the_command_is_wrong_then_nothing_is_asked(
    pump: Pump, arguments: tuple[str, ...]
) -> None:
    assert pump("control", *arguments).exit_code == 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--health", "http"), "write PORT or HOST:PORT"),
        (("--control", "0.0.0.0:9091"), "this machine alone"),
        (("--control", "unix:"), "unix:/run/pump.sock"),
    ],
)
def test_when_run_is_given_a_wrong_address_then_it_is_a_usage_error(
    pump: Pump, greetings: Path, options: tuple[str, ...], says: str
) -> None:
    result = pump("run", "greeting:app", "--until-empty", *options)

    assert result.exit_code == 2
    assert says in result.stderr


def test_when_the_app_is_reloaded_then_its_child_serves_at_the_same_addresses() -> None:
    options = RunOptions(target="app", health="0.0.0.0:80", control="unix:/run/p.sock")

    assert {"--health=0.0.0.0:80", "--control=unix:/run/p.sock"} <= set(options.arguments())

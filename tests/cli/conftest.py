"""A folder to stand in, and the command line called inside the test's process."""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest
import structlog
from click.testing import CliRunner, Result

from pump.cli.root import cli

GREETINGS = """
    from handlers import Handler
    from pump import App, Command, InvalidMessage, Subscription

    app = App("local://")

    class Greet(Command):
        name: str

    @app.handler
    class GreetHandler(Handler[Greet]):
        async def handle(self, request: Greet) -> None:
            if not request.name:
                raise InvalidMessage("a greeting needs a name")
            print(f"Hello, {request.name}!", flush=True)

    app.subscribe(
        Subscription(
            queue="greetings",
            request=Greet,
            dead_letter_queue="greetings-dead",
            invalid_queue="greetings-invalid",
        )
    )
"""

Pump = Callable[..., Result]
Write = Callable[[str, str], Path]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working folder; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    for name in [name for name in os.environ if name.startswith("PUMP_")]:
        monkeypatch.delenv(name)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and Path(file).is_relative_to(tmp_path):
            del sys.modules[name]


@pytest.fixture
def write(folder: Path) -> Write:
    def write(name: str, text: str) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
        return path

    return write


@pytest.fixture
def greetings(write: Write) -> Path:
    """An app in greeting.py, on the queues of the working folder."""
    return write("greeting.py", GREETINGS)


@pytest.fixture
def pump(folder: Path) -> Iterator[Pump]:
    """`pump(...)` in this process; logging is put back as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []
    runner = CliRunner()

    def call(*arguments: str, input: str | bytes | None = None) -> Result:
        return runner.invoke(cli, arguments, input=input, prog_name="pump")

    yield call
    root.handlers = handlers
    root.setLevel(level)
    structlog.reset_defaults()

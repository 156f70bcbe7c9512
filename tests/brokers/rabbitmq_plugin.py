"""The fixtures of tests against RabbitMQ, and what is said where it cannot be had."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from .launch_rabbitmq import VHOSTS
from .rabbitmq_server import RabbitMQ, installed_server, owned_server_folder

_FOLDER = pytest.StashKey[Path]()
_WORKER_INPUT = "rabbitmq_folder"
MISSING = (
    "RabbitMQ cannot be had: install rabbitmq-server (`make test-brokers` does so as root), or "
    "name a server with --rabbitmq-url"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rabbitmq-url",
        metavar="URL",
        help="run the tests of RabbitMQ against this server instead of one of their own",
    )


def pytest_configure(config: pytest.Config) -> None:
    worker_input: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker_input is not None:
        config.stash[_FOLDER] = Path(worker_input[_WORKER_INPUT])
        return
    run = ExitStack()
    config.stash[_FOLDER] = run.enter_context(owned_server_folder())
    config.add_cleanup(run.close)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """xdist is about to start a worker: tell it where the run's folder is."""
    node.workerinput[_WORKER_INPUT] = str(node.config.stash[_FOLDER])


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One loud line: what was left out must not look like what has passed."""
    skipped = terminalreporter.stats.get("skipped", [])
    count = sum(MISSING in str(report.longrepr) for report in skipped)
    if count:
        terminalreporter.write_line(f"{count} TESTS LEFT OUT: {MISSING}", red=True, bold=True)


def _require_server() -> None:
    if installed_server() is not None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(MISSING)
    pytest.skip(MISSING)


@pytest.fixture(scope="session")
def rabbitmq_url(pytestconfig: pytest.Config) -> str:
    """A virtual host of this worker's own on the run's RabbitMQ, or the one that was named."""
    if (url := pytestconfig.getoption("--rabbitmq-url")) is not None:
        return str(url)
    _require_server()
    server = RabbitMQ(pytestconfig.stash[_FOLDER])
    server.start()
    worker = os.environ.get("PYTEST_XDIST_WORKER", "/")
    return server.url(worker if worker in VHOSTS else "/")


@pytest.fixture
def own_rabbitmq() -> Iterator[Callable[[], RabbitMQ]]:
    """Start a RabbitMQ of the test's own, to be killed and started again."""
    _require_server()
    with ExitStack() as servers:

        def start() -> RabbitMQ:
            server = RabbitMQ(servers.enter_context(owned_server_folder()))
            server.start()
            return server

        yield start

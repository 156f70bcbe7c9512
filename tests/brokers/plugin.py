"""The fixtures of tests against real servers, and the servers' lives around them.

The process that began the run owns LocalStack, an xdist worker joins it; `pump local` starts in a
moment, so every worker has one of its own. Nothing is started until a test asks for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from .aws_account import AwsAccount, delete_queues
from .localstack import LocalStack, owned_folder, server_in
from .nats_server import NatsServer, nats_server
from .pump_local import PumpLocal, pump_local

_FOLDER = pytest.StashKey[Path]()
_WORKER_INPUT = "localstack_folder"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sqs-endpoint",
        metavar="URL",
        help="run the tests of `pump local` against this SQS server instead, to compare",
    )


def pytest_configure(config: pytest.Config) -> None:
    worker_input: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker_input is not None:
        config.stash[_FOLDER] = Path(worker_input[_WORKER_INPUT])
        return
    run = ExitStack()
    config.stash[_FOLDER] = run.enter_context(owned_folder())
    config.add_cleanup(run.close)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """xdist is about to start a worker: tell it where the run's folder is."""
    node.workerinput[_WORKER_INPUT] = str(node.config.stash[_FOLDER])


@pytest.fixture(scope="session")
def localstack(pytestconfig: pytest.Config) -> LocalStack:
    """The run's LocalStack with SQS, S3 and SNS, shared by all workers."""
    return server_in(pytestconfig.stash[_FOLDER])


@pytest.fixture
def no_aws_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The developer's settings are out of sight."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, os.devnull)


@pytest.fixture
def aws(localstack: LocalStack, no_aws_settings: None) -> Iterator[AwsAccount]:
    """An empty AWS account of the test's own on LocalStack."""
    account = AwsAccount(endpoint_url=localstack.url)
    yield account
    delete_queues(account)


@pytest.fixture
def own_pump_local(tmp_path: Path) -> Iterator[Callable[..., PumpLocal]]:
    """Start a `pump local` of the test's own: `own_pump_local("--flag", name="other")`."""
    with ExitStack() as servers:

        def start(*arguments: str, name: str = "server") -> PumpLocal:
            return servers.enter_context(pump_local(tmp_path / name, *arguments))

        yield start


@pytest.fixture(scope="session")
def local_sqs(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The URL of this process's `pump local`, or of the server named by `--sqs-endpoint`."""
    if (url := pytestconfig.getoption("--sqs-endpoint")) is not None:
        yield str(url)
        return
    with pump_local(tmp_path_factory.mktemp("pump-local")) as server:
        yield server.url


@pytest.fixture
def local_aws(local_sqs: str, no_aws_settings: None) -> Iterator[AwsAccount]:
    """An empty AWS account of the test's own on `pump local`."""
    account = AwsAccount(endpoint_url=local_sqs)
    yield account
    delete_queues(account)


@pytest.fixture(scope="session")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """This process's nats-server with JetStream."""
    with nats_server(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture
def own_nats(tmp_path: Path) -> Iterator[Callable[..., NatsServer]]:
    """Start a nats-server of the test's own: `own_nats("max_payload: 4096")`."""
    with ExitStack() as servers:

        def start(config: str = "", *, name: str = "nats") -> NatsServer:
            return servers.enter_context(nats_server(tmp_path / name, config))

        yield start

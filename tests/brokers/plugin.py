"""The fixtures of tests against LocalStack, and the server's life around them.

The process that began the run owns the server, an xdist worker joins it. Nothing is started
until a test asks for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from .aws_account import AwsAccount, delete_queues
from .localstack import LocalStack, owned_folder, server_in

_FOLDER = pytest.StashKey[Path]()
_WORKER_INPUT = "localstack_folder"


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
def aws(localstack: LocalStack, monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsAccount]:
    """An empty AWS account of the test's own; the developer's settings are out of sight."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, os.devnull)
    account = AwsAccount(endpoint_url=localstack.url)
    yield account
    delete_queues(account)

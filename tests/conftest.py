"""What every test shares: how hard Hypothesis tries, and a loop that nothing may block."""

from __future__ import annotations

import functools
import gc
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from pump.stores import spill

from .blocked_loop import blocking_raises

pytest_plugins = [
    "tests.brokers.plugin",
    "tests.brokers.postgres_plugin",
    "tests.brokers.rabbitmq_plugin",
    "tests.brokers.servicebus_plugin",
    "tests.conformance.recording",
    "tests.selecting",
]

# A state machine's first example pays for imports, so time is no measure of a single one;
# pytest's timeout bounds the whole test.
_DEFAULT = settings(
    deadline=None,
    max_examples=100,
    stateful_step_count=25,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("default", _DEFAULT)
settings.register_profile("ci", _DEFAULT, derandomize=True)
# Needs `--timeout 600` as well.
settings.register_profile("thorough", _DEFAULT, max_examples=2_000, stateful_step_count=50)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# A shell starts its background jobs deaf to Ctrl-C, and so would be what the tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What collecting makes lives until the end: the garbage collector need not look at it again
    and again, neither while it is made nor during the tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    """Let everything go: libraries in C tell of what is left at the end."""
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def _read_the_descriptions_of_services_once() -> Iterator[None]:
    """botocore reads them anew for each session, a megabyte of JSON: most of what a test that
    makes a client of its own would cost.
    """
    import botocore.session

    make = botocore.session.create_loader
    botocore.session.create_loader = functools.cache(make)
    yield
    botocore.session.create_loader = make


@pytest.fixture(scope="session", autouse=True)
def _trust_no_public_authority() -> Iterator[None]:
    """aiobotocore reads all of them for each client, on the event loop, also of a server without
    TLS. Servers with it are tests' own, with a certificate that is named.
    """
    import aiobotocore.httpsession

    find = aiobotocore.httpsession.get_cert_path
    aiobotocore.httpsession.get_cert_path = lambda verify: None if verify is True else find(verify)
    yield
    aiobotocore.httpsession.get_cert_path = find


@pytest.fixture(scope="session", autouse=True)
def _any_disk_will_do() -> None:
    """Whether the tests run in a container, or on a disk in memory, is not what they are about."""
    spill._MOUNTS = Path(os.devnull)


@pytest.fixture(scope="session", autouse=True)
def _nothing_blocks_the_loop() -> Iterator[None]:
    with blocking_raises():
        yield

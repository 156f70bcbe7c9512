"""The fixtures of tests against the Service Bus peer: a process that the real SDK talks to.

It starts in a moment, so every worker has one of its own, and a test that breaks things another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from .servicebus_peer.process import ServiceBusPeer, servicebus_peer


@pytest.fixture(scope="session")
def servicebus() -> Iterator[ServiceBusPeer]:
    """This process's peer."""
    with servicebus_peer() as peer:
        yield peer


@pytest.fixture(scope="session")
def travelling_servicebus() -> Iterator[ServiceBusPeer]:
    """A peer whose time the tests of this process skip; it is later there than here."""
    with servicebus_peer() as peer:
        yield peer


@pytest.fixture
def own_servicebus() -> Iterator[Callable[[], ServiceBusPeer]]:
    """Start a peer of the test's own."""
    with ExitStack() as peers:

        def start() -> ServiceBusPeer:
            return peers.enter_context(servicebus_peer())

        yield start

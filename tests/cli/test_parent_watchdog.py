"""A process whose event loop hears nothing does not outlive its supervisor."""

import socket
import threading
from collections.abc import Iterator

import pytest

from pump.cli.worker import ParentWatchdog

from .programs import PATIENCE_S


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_when_the_other_end_goes_unheard_then_it_gives_up(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    has_given_up = threading.Event()
    ParentWatchdog(ours).watch(has_given_up.set, deaf_s=0.01)

    theirs.close()

    assert has_given_up.wait(PATIENCE_S)


def test_when_the_end_was_heard_then_it_does_not_give_up(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    watchdog = ParentWatchdog(ours)
    has_given_up = threading.Event()
    before = set(threading.enumerate())
    watchdog.watch(has_given_up.set)
    [watcher] = set(threading.enumerate()) - before

    watchdog.is_heard.set()
    theirs.close()

    watcher.join(PATIENCE_S)
    assert not watcher.is_alive()
    assert not has_given_up.is_set()


def test_what_is_said_is_left_for_others_to_read(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    has_given_up = threading.Event()
    ParentWatchdog(ours).watch(has_given_up.set, deaf_s=0.01)

    theirs.sendall(b"drain")
    theirs.shutdown(socket.SHUT_RDWR)

    assert has_given_up.wait(PATIENCE_S)
    assert ours.recv(100) == b"drain"

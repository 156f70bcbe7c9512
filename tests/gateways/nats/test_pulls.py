"""Pulls: what the server sends, and how it ends them (R3, R4)."""

from __future__ import annotations

import pytest

from gateways.nats.link import Incoming
from gateways.nats.pulls import Pull, PullEnd, pull_request
from pump.testing import VirtualClock


def said(status: str, text: str = "") -> Incoming:
    return Incoming("_INBOX.a.1", "", b"", {"Status": status, "Description": text})


def a_message(body: bytes = b"x", status: str | None = None) -> Incoming:
    headers = None if status is None else {"Status": status}
    return Incoming("orders", "$JS.ACK.orders.pump.1.1.1.1.1", body, headers)


@pytest.mark.parametrize(
    ("status", "text", "ending"),
    [
        ("404", "No Messages", PullEnd.DONE),
        ("408", "Request Timeout", PullEnd.DONE),
        ("409", "Consumer Deleted", PullEnd.GONE),
        ("503", "", PullEnd.GONE),
        ("409", "Exceeded MaxWaiting", PullEnd.CROWDED),
        ("409", "Server Shutdown", PullEnd.AGAIN),
        ("409", "Leadership Change", PullEnd.AGAIN),
        ("400", "Bad Request", PullEnd.REFUSED),
    ],
)
async def test_when_the_server_ends_a_pull_then_it_is_known_why(
    status: str, text: str, ending: PullEnd
) -> None:
    pull = Pull(10, VirtualClock(), ends_at_s=1e9)

    pull.receive(said(status, text))

    assert pull.done.done()
    assert (pull.end, pull.status) == (ending, f"{status} {text}".strip())


async def test_when_enough_has_come_then_the_pull_is_done() -> None:
    pull = Pull(2, VirtualClock(), ends_at_s=1e9)

    pull.receive(a_message())
    pull.receive(said("100", "Idle Heartbeat"))
    assert not pull.done.done()
    pull.receive(a_message())

    assert pull.done.done()
    assert len(pull.arrived) == 2


async def test_when_a_message_looks_like_a_status_then_it_is_still_a_message() -> None:
    """Law 4: somebody else may have written it so."""
    pull = Pull(2, VirtualClock(), ends_at_s=1e9)

    pull.receive(a_message(b"", status="404"))

    assert len(pull.arrived) == 1
    assert not pull.done.done()


def test_when_a_pull_may_wait_then_the_server_is_told_how_long() -> None:
    assert pull_request(max_count=5, wait_s=1.0, is_bounded=False) == {
        "batch": 5,
        "no_wait": True,
        "expires": 1_000_000_000,
    }
    assert "expires" not in pull_request(max_count=5, wait_s=0.0, is_bounded=False)
    # While as many are in flight as may be, the server leaves a pull unanswered.
    assert pull_request(max_count=5, wait_s=0.0, is_bounded=True)["expires"] > 0


async def test_when_a_message_is_read_late_then_its_lease_runs_since_the_pull_could_bring_it() -> (
    None
):
    """R3: the loop may have been blocked while the message waited to be read."""
    clock = VirtualClock()
    pull = Pull(2, clock, ends_at_s=clock.now_s() + 5.0)

    pull.receive(a_message())
    await clock.advance(20.0)
    pull.receive(a_message())

    at_once, late = (each.at_s for each in pull.arrived)
    assert late - at_once == 5.0

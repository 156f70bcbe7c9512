"""The end of a transport: prompt, complete, and nothing left behind."""

from __future__ import annotations

import asyncio

import pytest

from gateways._aws.sdk_transport import Polling, Reply, Transport
from gateways._aws.settings import TransportKind
from pump.clock import SYSTEM_CLOCK
from pump.errors import ConnectionFailed

from .conftest import Connect
from .fake_aws import FakeAws, Wait

URL = "http://127.0.0.1/123456789012/orders"


async def _call(transport: Transport, *, polling: Polling | None = None) -> Reply:
    request = {"QueueUrl": URL}
    return await transport.call("sqs", "receive_message", request, target="orders", polling=polling)


async def test_when_it_is_closed_then_its_connections_are_and_calls_are_refused(
    aws: FakeAws, connect: Connect
) -> None:
    transport = connect()
    await _call(transport)

    await asyncio.gather(transport.aclose(), transport.aclose())
    await transport.aclose()

    await aws.connected_to(0)
    with pytest.raises(ConnectionFailed, match="orders: the gateway is closed"):
        await _call(transport)
    with pytest.raises(ConnectionFailed, match="the gateway is closed"):
        await transport.open()


async def test_when_it_was_never_used_then_closing_does_nothing(
    aws: FakeAws, connect: Connect
) -> None:
    transport = connect()

    await transport.aclose()

    assert aws.connection_count == 0


async def test_when_it_is_closed_then_long_polls_end_at_once_and_calls_may_finish(
    aws: FakeAws, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Draining changes no outcome: a delete under way is not broken off."""
    # On a machine that is busy the call may take its time; closing waits no longer than it does.
    monkeypatch.setattr("gateways._aws.sdk_transport.CLOSE_GRACE_S", 15.0)
    transport = connect()
    poll_wait, call_wait = Wait(), Wait()
    aws.script.append(poll_wait)
    poll = asyncio.create_task(_call(transport, polling=Polling(50, 0)))
    await aws.busy_with(1)
    aws.script.append(call_wait)
    call = asyncio.create_task(_call(transport))
    await aws.busy_with(2)

    closing = asyncio.create_task(transport.aclose())
    with pytest.raises(ConnectionFailed, match="the gateway is closed"):
        await poll
    call_wait.release.set()
    reply = await call
    await closing

    assert reply["ResponseMetadata"]["HTTPStatusCode"] == 200
    poll_wait.release.set()


async def test_when_a_call_does_not_end_then_closing_does_not_wait_for_it(
    aws: FakeAws, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateways._aws.sdk_transport.CLOSE_GRACE_S", 0.01)
    transport = connect()
    wait = Wait()
    aws.script.append(wait)
    call = asyncio.create_task(_call(transport))
    await aws.busy_with(1)

    await transport.aclose()

    with pytest.raises(ConnectionFailed, match="the gateway is closed"):
        await call
    wait.release.set()
    await aws.connected_to(0)


async def test_when_it_is_closed_while_the_client_is_made_then_the_call_fails_as_closed(
    aws: FakeAws, connect: Connect
) -> None:
    transport = connect()
    calls = [asyncio.create_task(_call(transport)) for _ in range(3)]
    await asyncio.wait(calls, timeout=0)

    await transport.aclose()

    for call in calls:
        with pytest.raises(ConnectionFailed, match="the gateway is closed"):
            await call
    assert aws.connection_count == 0
    left = [task.get_name() for task in asyncio.all_tasks()]
    assert not any(name.startswith("pumphouse-aws") for name in left)


async def test_when_closing_is_cancelled_then_it_is_still_done(
    aws: FakeAws, connect: Connect
) -> None:
    """Law 6: the caller is cancelled, and nothing stays open."""
    transport = connect()
    await _call(transport)
    closing = asyncio.create_task(transport.aclose())
    await asyncio.wait([closing], timeout=0)

    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing

    await aws.connected_to(0)


async def test_when_a_cancelled_call_fails_later_then_nobody_hears_of_it(
    aws: FakeAws, connect: Connect, kind: TransportKind
) -> None:
    """Law 6: a thread's late error is no unretrieved exception (warnings are errors here)."""
    transport = connect(max_attempts=1)
    wait = Wait()
    aws.script.append(wait)
    call = asyncio.create_task(_call(transport))
    await aws.busy_with(1)

    async with SYSTEM_CLOCK.timeout(5):
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await aws.stop()
        await transport.aclose()

    assert kind in TransportKind


async def test_when_two_are_open_then_closing_one_leaves_the_other(
    aws: FakeAws, connect: Connect
) -> None:
    one, other = connect(), connect()
    await asyncio.gather(_call(one), _call(other))

    await one.aclose()

    assert await _call(other)

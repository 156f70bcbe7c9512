"""The transport when AWS, or the way to it, fails: tried again, and then a clear error."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from botocore.retries.standard import ExponentialBackoff

from gateways._aws.sdk_transport import Reply, Transport
from pump.errors import AccessDenied, ConnectionFailed, CredentialsExpired, PumpError, Throttled

from .conftest import Connect
from .fake_aws import Answer, FakeAws, Reset, Step, Wait, refusal

THROTTLE = refusal(400, "ThrottlingException")
BREAKDOWN = refusal(500, "InternalError")
TRUNCATED = Answer(body=b'{"QueueUrls": []}', sent=5)
OK = Answer(body=b'{"QueueUrls": ["http://queue"]}')


@pytest.fixture(autouse=True)
def delays(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, float]]:
    """The waits the SDK chose, by attempt; it is told to wait no time instead."""
    chosen: list[tuple[int, float]] = []
    real = ExponentialBackoff.delay_amount

    def skip(self: Any, context: Any) -> float:
        chosen.append((context.attempt_number, real(self, context)))
        return 0.0

    monkeypatch.setattr(ExponentialBackoff, "delay_amount", skip)
    return chosen


async def _list(transport: Transport) -> Reply:
    return await transport.call("sqs", "list_queues", {}, target="orders")


@pytest.mark.parametrize(
    "fault",
    [
        THROTTLE,
        refusal(403, "RequestThrottled"),
        BREAKDOWN,
        Answer(status=503, body=b"<html>busy</html>"),
        Answer(status=502, body=b""),
        Reset(),
        TRUNCATED,
    ],
    ids=["throttled", "request-throttled", "500", "503", "502", "reset", "truncated"],
)
async def test_when_a_fault_passes_then_the_call_succeeds_by_itself(
    aws: FakeAws, connect: Connect, delays: list[tuple[int, float]], fault: Step
) -> None:
    """R51, R52: throttling and lost connections are backed off from, with jitter, and retried."""
    aws.script.extend([fault, fault, OK])

    reply = await _list(connect(max_attempts=3))

    assert reply["QueueUrls"] == ["http://queue"]
    assert len(aws.seen) == 3
    assert [attempt for attempt, _ in delays] == [1, 2]
    assert all(0 <= delay_s < 2 ** (attempt - 1) for attempt, delay_s in delays)
    assert all(delay_s != int(delay_s) for _, delay_s in delays), "no jitter"


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (THROTTLE, Throttled),
        (BREAKDOWN, ConnectionFailed),
        (Reset(), ConnectionFailed),
        (TRUNCATED, ConnectionFailed),
    ],
)
async def test_when_a_fault_does_not_pass_then_attempts_are_bounded(
    aws: FakeAws, connect: Connect, fault: Step, expected: type[PumpError]
) -> None:
    """R51, R52: then the error of its kind, naming the target; and the client still works."""
    transport = connect(max_attempts=3)
    aws.always = fault

    with pytest.raises(expected, match="orders"):
        await _list(transport)

    assert len(aws.seen) == 3
    aws.always = OK
    assert await _list(transport)


async def test_when_aws_says_how_long_to_wait_then_the_error_says_it_too(
    aws: FakeAws, connect: Connect
) -> None:
    """R52."""
    aws.always = refusal(400, "ThrottlingException", retry_after="3")

    with pytest.raises(Throttled) as caught:
        await _list(connect(max_attempts=1))

    assert caught.value.retry_after_s == 3.0


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (refusal(403, "AccessDeniedException"), AccessDenied("orders", "sqs:ListQueues")),
        (refusal(403, "ExpiredTokenException"), CredentialsExpired("orders", "ExpiredToken")),
        (
            refusal(400, "QueueDoesNotExist", x_amzn_query_error="AccessDenied;Sender"),
            AccessDenied("orders", "sqs:ListQueues"),
        ),
    ],
)
async def test_when_a_refusal_is_final_then_it_is_not_asked_again(
    aws: FakeAws, connect: Connect, answer: Answer, expected: PumpError
) -> None:
    """R52: only what may pass is tried again."""
    aws.always = answer

    with pytest.raises(type(expected)) as caught:
        await _list(connect())

    assert str(caught.value) == str(expected)
    assert len(aws.seen) == 1


async def test_when_nobody_listens_then_the_connection_has_failed_and_recovers(
    aws: FakeAws, connect: Connect
) -> None:
    """R51: lost network, then back; the client's state is intact."""
    transport = connect(max_attempts=2)
    await _list(transport)
    port = await aws.stop()

    with pytest.raises(ConnectionFailed, match="orders"):
        await _list(transport)

    await aws.start(port)
    assert await _list(transport)


async def test_when_the_reply_does_not_come_then_the_call_fails_in_time(
    aws: FakeAws, connect: Connect
) -> None:
    """R51: a silent server is a lost one."""
    transport = connect(read_timeout_s=20.5, max_attempts=10)
    # Shorter than settings allow, so that the test does not take that long.
    object.__setattr__(transport._sdk._settings, "read_timeout_s", 0.3)  # type: ignore[attr-defined]
    aws.script.append(Wait())
    aws.always = OK

    reply = await _list(transport)

    assert reply["QueueUrls"]
    # More than two on a machine that is too busy for the answer to come in time.
    assert len(aws.seen) >= 2


async def test_when_a_streamed_body_breaks_off_then_the_connection_has_failed(
    aws: FakeAws, connect: Connect
) -> None:
    """R51: half an object is no object."""
    aws.script.append(Answer(body=b"x" * 100_000, sent=50_000))

    with pytest.raises(ConnectionFailed, match="claims/k"):
        await connect().call(
            "s3", "get_object", {"Bucket": "claims", "Key": "k"}, target="claims/k"
        )


async def test_when_many_calls_meet_faults_then_each_gets_its_own_reply(
    aws: FakeAws, connect: Connect
) -> None:
    """R51, R52, R53: faults of some calls are no matter to the others."""
    aws.script.extend([THROTTLE, OK, Reset(), OK, BREAKDOWN, OK, TRUNCATED] * 6)
    aws.always = OK
    transport = connect(max_connections=8, max_attempts=10)

    replies = await asyncio.gather(*(_list(transport) for _ in range(50)))

    assert [reply["QueueUrls"] for reply in replies] == [["http://queue"]] * 50
    assert all(json.loads(seen.body) == {} for seen in aws.seen)

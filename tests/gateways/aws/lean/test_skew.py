"""A wrong clock: signatures go by AWS's time, once a refusal has told it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from email.utils import formatdate

import pytest

from gateways._aws.lean.service import AwsTime, skew_s
from pump.clock import SYSTEM_CLOCK
from pump.errors import AccessDenied, CredentialsExpired
from pump.testing.virtual_clock import VirtualClock

from ..conftest import Connect
from ..fake_aws import Answer, FakeAws, query_refusal, refusal

NOON_S = 1_440_938_160.0
OBJECT = {"Bucket": "bucket", "Key": "k"}


def _dated(answer: Answer, ahead_s: float) -> Answer:
    date = formatdate(SYSTEM_CLOCK.time_s() + ahead_s, usegmt=True)
    return Answer(status=answer.status, body=answer.body, headers={"date": date})


def _ahead_s(stamp: str) -> float:
    signed_at = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    return signed_at.timestamp() - SYSTEM_CLOCK.time_s()


@pytest.mark.parametrize("code", ["RequestTimeTooSkewed", "InvalidSignatureException"])
@pytest.mark.parametrize("ahead_s", [3_600.0, -3_600.0])
def test_when_a_refusal_may_be_for_the_time_then_its_date_tells_how_far(
    code: str, ahead_s: float
) -> None:
    date = formatdate(NOON_S + ahead_s, usegmt=True)

    assert skew_s(code, date, now_s=NOON_S) == ahead_s


@pytest.mark.parametrize(
    ("code", "date"),
    [
        ("AccessDenied", formatdate(NOON_S + 3_600, usegmt=True)),
        ("RequestTimeTooSkewed", formatdate(NOON_S + 200, usegmt=True)),
        ("RequestTimeTooSkewed", ""),
        ("RequestTimeTooSkewed", "yesterday"),
    ],
    ids=["another-reason", "too-little", "no-date", "no-such-date"],
)
def test_when_the_time_is_not_the_reason_then_it_is_not_corrected(code: str, date: str) -> None:
    assert skew_s(code, date, now_s=NOON_S) is None


def test_when_it_was_corrected_then_the_same_date_is_no_reason_again() -> None:
    """Or a request that is refused for another reason would be sent again and again."""
    time = AwsTime(VirtualClock())
    headers = {"date": formatdate(time.now_s() + 3_600, usegmt=True)}

    assert time.learn("SignatureDoesNotMatch", headers, signed_ahead_s=0.0)
    corrected_s = time.ahead_s
    assert not time.learn("SignatureDoesNotMatch", headers, signed_ahead_s=corrected_s)
    assert time.ahead_s == corrected_s


@pytest.mark.parametrize(
    ("service", "refused"),
    [
        ("sqs", refusal(400, "InvalidSignatureException", "Signature expired: …")),
        ("s3", query_refusal(403, "RequestTimeTooSkewed")),
    ],
)
async def test_when_this_clock_is_wrong_then_the_next_signature_is_by_aws_time(
    aws: FakeAws, connect: Connect, service: str, refused: Answer
) -> None:
    """R51: and so are those of later calls, without another refusal."""
    transport = connect()
    aws.script.append(_dated(refused, 7_200))
    call = ("sqs", "list_queues", {}) if service == "sqs" else ("s3", "get_object", OBJECT)

    replies = [await transport.call(*call) for _ in range(2)]

    first, second, third = (seen.headers["x-amz-date"] for seen in aws.seen)
    assert first < second <= third
    assert abs(_ahead_s(second) - 7_200) < 600
    assert [reply["ResponseMetadata"]["RetryAttempts"] for reply in replies] == [1, 0]


async def test_when_a_head_is_refused_for_the_time_then_its_date_is_enough(
    aws: FakeAws, connect: Connect
) -> None:
    """There is no body to say why, and a date that is hours off says it."""
    aws.script.append(_dated(Answer(status=403, body=b""), 7_200))

    reply = await connect().call("s3", "head_object", OBJECT)

    assert reply["ResponseMetadata"]["RetryAttempts"] == 1
    assert abs(_ahead_s(aws.seen[1].headers["x-amz-date"]) - 7_200) < 600


async def test_when_several_were_signed_by_the_wrong_time_then_each_is_signed_anew(
    aws: FakeAws, connect: Connect
) -> None:
    """R51, R53: the first refusal corrects the time, and is not the only one that was for it."""
    transport = connect()
    aws.script.extend([_dated(refusal(403, "SignatureDoesNotMatch"), 7_200)] * 3)

    replies = await asyncio.gather(*(transport.call("sqs", "list_queues", {}) for _ in range(3)))

    assert [reply["ResponseMetadata"]["RetryAttempts"] for reply in replies] == [1, 1, 1]
    assert len(aws.seen) == 6


async def test_when_the_corrected_signature_is_refused_too_then_the_call_fails(
    aws: FakeAws, connect: Connect
) -> None:
    aws.always = _dated(refusal(403, "SignatureDoesNotMatch"), 7_200)

    with pytest.raises(CredentialsExpired):
        await connect(max_attempts=4).call("sqs", "list_queues", {})

    assert len(aws.seen) == 2


async def test_when_there_is_one_attempt_only_then_the_next_call_has_the_right_time(
    aws: FakeAws, connect: Connect
) -> None:
    transport = connect(max_attempts=1)
    aws.script.append(_dated(refusal(403, "SignatureDoesNotMatch"), 7_200))

    with pytest.raises(CredentialsExpired):
        await transport.call("sqs", "list_queues", {})
    await transport.call("sqs", "list_queues", {})

    first, second = (seen.headers["x-amz-date"] for seen in aws.seen)
    assert first < second


async def test_when_a_refusal_is_for_another_reason_then_its_date_changes_nothing(
    aws: FakeAws, connect: Connect
) -> None:
    aws.script.append(_dated(refusal(403, "AccessDenied"), 7_200))

    with pytest.raises(AccessDenied):
        await connect().call("sqs", "list_queues", {})

    assert len(aws.seen) == 1

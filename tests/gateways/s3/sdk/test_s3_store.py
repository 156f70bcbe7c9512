"""The store over both SDKs: what it writes, and what S3's answers become (T8)."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import pytest

from gateways.s3.store.objects import (
    ConditionFailed,
    Get,
    List,
    Put,
    Remove,
    Unknown,
    WriteConflict,
    WrittenObject,
)
from gateways.s3.store.s3_store import S3Store
from pump.errors import AccessDenied, ConfigurationError, CredentialsExpired, Throttled
from pump.testing import VirtualClock
from tests.gateways.aws.fake_aws import Answer, FakeAws, HalfHead, Reset, Step, Wait

from .conftest import BUCKET, MakeStore
from .replies import (
    BREAKDOWN,
    CONFLICT,
    DATE_S,
    NO_SUCH_BUCKET,
    NO_SUCH_KEY,
    PRECONDITION_FAILED,
    SLOW_DOWN,
    bare,
    error,
    listing,
    written,
)

NEW = Put("queues/a%20b/lease.json", b"mine", is_new=True)
OVER = Put("key", b"mine", if_match='"7"')
PLAIN = Put("key", b"mine")


# -- writing ------------------------------------------------------------------------------------


async def test_when_a_new_object_is_written_then_the_condition_is_sent_and_nothing_else(
    aws: FakeAws, store: S3Store
) -> None:
    """T8: single conditional writes."""
    aws.script.append(written('"abc"'))

    reply = await store.perform(NEW)

    [seen] = aws.seen
    assert reply == WrittenObject('"abc"')
    assert (seen.method, urlsplit(seen.path).path) == (
        "PUT",
        f"/{BUCKET}/queues/a%2520b/lease.json",
    )
    assert (seen.headers["if-none-match"], seen.body) == ("*", b"mine")
    assert "if-match" not in seen.headers


async def test_when_a_version_is_replaced_then_its_etag_is_the_condition(
    aws: FakeAws, store: S3Store
) -> None:
    """T8."""
    aws.script.append(written())

    await store.perform(OVER)

    [seen] = aws.seen
    assert seen.headers["if-match"] == '"7"'
    assert "if-none-match" not in seen.headers


async def test_when_a_key_of_ones_own_is_written_then_without_a_condition(
    aws: FakeAws, store: S3Store
) -> None:
    """T8: fresh ids need none."""
    assert await store.perform(PLAIN) == WrittenObject('"1"')

    [seen] = aws.seen
    assert {"if-match", "if-none-match"}.isdisjoint(seen.headers)


@pytest.mark.parametrize("request_", [NEW, OVER], ids=["new", "over"])
async def test_when_the_condition_does_not_hold_then_it_is_refused_and_asked_once(
    aws: FakeAws, store: S3Store, request_: Put
) -> None:
    """T8."""
    aws.script.append(PRECONDITION_FAILED)

    assert await store.perform(request_) == ConditionFailed()
    assert len(aws.seen) == 1


async def test_when_the_version_to_replace_is_gone_then_it_is_refused(
    aws: FakeAws, store: S3Store
) -> None:
    """T8: S3 says 404."""
    aws.script.append(NO_SUCH_KEY)

    assert await store.perform(OVER) == ConditionFailed()


async def test_when_another_write_is_under_way_then_it_is_busy_and_nothing_is_decided(
    aws: FakeAws, store: S3Store
) -> None:
    """T8: 409 is not 412."""
    aws.script.append(CONFLICT)

    assert await store.perform(NEW) == WriteConflict()


@pytest.mark.parametrize("fault", [Reset(), BREAKDOWN, SLOW_DOWN], ids=["reset", "500", "503"])
@pytest.mark.parametrize(
    ("request_", "refusal"),
    [(NEW, PRECONDITION_FAILED), (OVER, PRECONDITION_FAILED), (OVER, NO_SUCH_KEY)],
    ids=["new", "over", "over what is gone"],
)
async def test_when_the_sdk_asked_twice_then_what_is_in_the_way_may_be_ours(
    aws: FakeAws, store: S3Store, fault: Step, request_: Put, refusal: Answer
) -> None:
    """T8: an answer that is lost after the write is the commonest way to lose one's own lease."""
    aws.script.extend([fault, refusal])

    assert await store.perform(request_) == ConditionFailed(may_be_ours=True)
    assert len(aws.seen) == 2


@pytest.mark.parametrize("fault", [Reset(), BREAKDOWN, SLOW_DOWN], ids=["reset", "500", "503"])
async def test_when_the_sdk_asked_twice_then_what_was_busy_may_be_written_by_us(
    aws: FakeAws, store: S3Store, fault: Step
) -> None:
    """T8: 409 says that the second copy decided nothing, and not what became of the first."""
    aws.script.extend([fault, CONFLICT])

    assert await store.perform(NEW) == WriteConflict(may_be_ours=True)


async def test_when_a_used_connection_breaks_then_nobody_repeats_a_write_unseen(
    aws: FakeAws, make_store: MakeStore
) -> None:
    """T8: aiohttp would send it again by itself, and S3 refuse it because of its first half."""
    store = make_store(max_attempts=1).store
    await store.perform(PLAIN)
    aws.script.extend([Reset(), PRECONDITION_FAILED])

    reply = await store.perform(NEW)

    assert isinstance(reply, Unknown)
    assert [seen.method for seen in aws.seen] == ["PUT", "PUT"]


@pytest.mark.parametrize("fault", [Reset(), BREAKDOWN, SLOW_DOWN], ids=["reset", "500", "503"])
@pytest.mark.parametrize(
    "request_", [NEW, PLAIN, Get("key"), Get("key", has_body=False), Remove(["a"]), List("a/")]
)
async def test_when_no_answer_tells_then_it_is_unknown(
    aws: FakeAws, store: S3Store, fault: Step, request_: Put | Get | Remove | List
) -> None:
    """T8, R51: it may have happened."""
    aws.always = fault

    reply = await store.perform(request_)

    assert isinstance(reply, Unknown)
    assert isinstance(reply.error, Throttled) == (
        fault is SLOW_DOWN and aws.seen[0].method != "HEAD"
    )


@pytest.mark.parametrize("etag", ["", '"12', "12"], ids=["none", "half", "bare"])
@pytest.mark.parametrize("request_", [NEW, Get("key")], ids=["put", "get"])
async def test_when_an_answer_has_no_whole_etag_then_it_is_unknown(
    aws: FakeAws, store: S3Store, etag: str, request_: Put | Get
) -> None:
    """T8: boto3 takes half a head for an answer."""
    aws.script.append(written(etag))

    assert isinstance(await store.perform(request_), Unknown)


@pytest.mark.parametrize(
    "request_",
    [NEW, Get("key"), Get("key", has_body=False), List("a/"), Remove(["a", "b"])],
    ids=["put", "get", "head", "list", "remove"],
)
async def test_when_an_answer_breaks_off_within_its_head_then_it_is_unknown(
    aws: FakeAws, make_store: MakeStore, request_: Put | Get | List | Remove
) -> None:
    """T8: boto3 would read an empty listing, or an empty lease, out of it."""
    aws.always = HalfHead(b'HTTP/1.1 200 OK\r\nETag: "9"\r\nDate: Sun, 16 N')

    assert isinstance(await make_store(max_attempts=1).store.perform(request_), Unknown)


async def test_when_an_answer_takes_too_long_then_it_is_unknown(
    aws: FakeAws, make_store: MakeStore
) -> None:
    """R51: sooner than a lease runs out."""
    clock = VirtualClock()
    store = make_store(clock).store
    aws.script.append(Wait())
    asking = asyncio.create_task(store.perform(NEW))
    await aws.busy_with(1)

    await clock.advance(20.0)

    reply = await asking
    assert isinstance(reply, Unknown)
    assert "within 20 s" in str(reply.error)


@pytest.mark.parametrize(
    ("answer", "kind_of_error"),
    [
        (error(403, "AccessDenied"), AccessDenied),
        (NO_SUCH_BUCKET, ConfigurationError),
        (error(400, "ExpiredToken"), CredentialsExpired),
        (error(501, "NotImplemented"), ConfigurationError),
        (error(400, "AuthorizationHeaderMalformed"), ConfigurationError),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
@pytest.mark.parametrize("request_", [NEW, OVER, Get("key"), List("a/")])
async def test_when_a_person_must_help_then_it_is_raised(
    aws: FakeAws,
    store: S3Store,
    answer: Answer,
    kind_of_error: type[Exception],
    request_: Put | Get | List,
) -> None:
    """No protocol mends a missing permission."""
    aws.always = answer

    with pytest.raises(kind_of_error):
        await store.perform(request_)


async def test_when_a_large_body_is_written_then_it_arrives_whole(
    aws: FakeAws, store: S3Store
) -> None:
    """R1."""
    body = bytes(range(256)) * 8192

    assert await store.perform(Put("key", body, is_new=True)) == WrittenObject('"1"')
    assert aws.seen[0].body == body


# -- time and counts ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer", [written(), PRECONDITION_FAILED, CONFLICT], ids=["200", "412", "409"]
)
async def test_when_a_reply_is_dated_then_the_stores_time_is_known(
    aws: FakeAws, make_store: MakeStore, answer: Answer
) -> None:
    """T8: also from a refusal."""
    watched = make_store()
    assert not watched.time.is_known
    aws.script.append(answer)

    await watched.store.perform(NEW)

    assert watched.time.earliest_s() <= DATE_S + 20.0
    assert watched.time.latest_s() >= DATE_S


async def test_when_the_sdk_asks_again_then_the_time_is_counted_from_the_first_try(
    aws: FakeAws, make_store: MakeStore
) -> None:
    """T8: whichever of the tries the date is of, it lies between the bounds."""
    clock = VirtualClock()
    watched = make_store(clock)
    held = Wait()
    aws.script.extend([Answer(status=500, body=b""), held])
    asking = asyncio.create_task(watched.store.perform(Get("key")))
    await aws.busy_with(1)
    while len(aws.seen) < 2:
        await aws.busy_with(1)
        await clock.settle()
    await clock.advance(10.0)
    held.release.set()
    await asking
    aws.script.append(written())

    await watched.store.perform(PLAIN)

    assert watched.time.latest_s() - watched.time.earliest_s() <= 1.1


@pytest.mark.parametrize("date", ["", "yesterday"])
async def test_when_a_reply_has_no_date_then_the_time_stays_unknown(
    aws: FakeAws, make_store: MakeStore, date: str
) -> None:
    """T8."""
    watched = make_store()
    aws.script.append(Answer(body=b"", headers={"ETag": '"1"', "Date": date}))

    await watched.store.perform(PLAIN)

    assert not watched.time.is_known


async def test_when_requests_are_counted_then_by_kind_and_with_their_repetitions(
    aws: FakeAws, store: S3Store
) -> None:
    """R50: what is paid for."""
    aws.script.extend([BREAKDOWN, written(), PRECONDITION_FAILED, bare(404), listing(), bare(204)])

    await store.perform(PLAIN)
    await store.perform(NEW)
    await store.perform(Get("key", has_body=False))
    await store.perform(List("a/"))
    await store.perform(Remove(["key"]))

    assert store.counts == {"put": 3, "get": 1, "list": 1, "remove": 1}

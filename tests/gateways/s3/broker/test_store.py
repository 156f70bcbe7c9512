"""The store on LocalStack and moto: conditions, listings, time, and answers that are lost (T8)."""

from __future__ import annotations

import asyncio

import pytest

from gateways.s3.store.objects import (
    ConditionFailed,
    FoundObject,
    Get,
    List,
    Missing,
    Page,
    Put,
    Remove,
    RemovedObject,
    Same,
    Unknown,
    WrittenObject,
)
from pump.clock import SYSTEM_CLOCK
from pump.errors import ConfigurationError, ConnectionFailed
from tests.brokers.fault_plan import (
    DROP_BEFORE,
    LOSE_RESPONSE,
    SERVER_ERROR,
    THROTTLE,
    TRUNCATE,
    UNAVAILABLE,
    Fault,
    FaultPlan,
)
from tests.brokers.fault_proxy import FaultProxy

from .bucket import Bucket

pytestmark = pytest.mark.broker


async def test_when_a_lease_lives_its_life_then_each_step_is_one_conditional_write(
    any_bucket: Bucket,
) -> None:
    """T8: claim, renew, ack, and everybody else refused."""
    store, _ = any_bucket.store()
    key = "queues/a%2Fb c/pending/1/lease.json"

    claimed = await store.perform(Put(key, b"one", is_new=True))
    assert isinstance(claimed, WrittenObject)
    assert await store.perform(Put(key, b"two", is_new=True)) == ConditionFailed()
    renewed = await store.perform(Put(key, b"three", if_match=claimed.etag))
    assert isinstance(renewed, WrittenObject)
    assert await store.perform(Put(key, b"zombie", if_match=claimed.etag)) == ConditionFailed()
    assert await store.perform(Get(key)) == FoundObject(renewed.etag, b"three", 5)
    assert await store.perform(Get(key, unless=renewed.etag)) == Same()
    assert await store.perform(Get(key, has_body=False)) == FoundObject(renewed.etag, b"", 5)
    assert await store.perform(Get(key, has_body=False, unless=renewed.etag)) == Same()
    acked = await store.perform(Put(key, b"", if_match=renewed.etag))
    assert isinstance(acked, WrittenObject)
    page = await store.perform(List("queues/"))
    assert isinstance(page, Page)
    assert [(each.key, each.etag, each.size) for each in page.entries] == [(key, acked.etag, 0)]
    assert await store.perform(Remove([key, "queues/never"])) == RemovedObject()
    assert await store.perform(Get(key)) == Missing()
    assert await store.perform(Get(key, has_body=False)) == Missing()
    assert await store.perform(Put(key, b"late", if_match=acked.etag)) == ConditionFailed()
    assert await store.perform(Remove([key])) == RemovedObject()
    assert await any_bucket.keys() == []


@pytest.mark.parametrize("is_new", [True, False], ids=["claim", "reclaim"])
async def test_when_many_write_at_once_then_exactly_one_does(
    any_bucket: Bucket, is_new: bool
) -> None:
    """R13, T8: whatever the others are told, it is not that they have written."""
    store, _ = any_bucket.store()
    before = await store.perform(Put("key", b"before"))
    assert isinstance(before, WrittenObject)
    key, etag = ("new", None) if is_new else ("key", before.etag)

    replies = await asyncio.gather(
        *(
            store.perform(Put(key, f"{number}".encode(), if_match=etag, is_new=is_new))
            for number in range(32)
        )
    )

    winners = [number for number, reply in enumerate(replies) if isinstance(reply, WrittenObject)]
    found = await store.perform(Get(key))
    assert isinstance(found, FoundObject)
    assert [f"{number}".encode() for number in winners] == [found.body]


async def test_when_many_keys_are_listed_then_page_by_page_in_their_order(
    any_bucket: Bucket,
) -> None:
    """R50."""
    store, _ = any_bucket.store()
    keys = [f"a/{number:02d}" for number in range(25)]
    await asyncio.gather(*(store.perform(Put(key, b"x")) for key in [*keys, "b/0"]))

    listed: list[str] = []
    is_last = False
    while not is_last:
        page = await store.perform(List("a/", after=listed[-1] if listed else "", max_count=10))
        assert isinstance(page, Page)
        listed += [each.key for each in page.entries]
        is_last = page.is_last

    assert listed == keys
    assert store.counts["list"] == 3


async def test_when_more_than_a_thousand_are_removed_then_all_are_gone(bucket: Bucket) -> None:
    store, _ = bucket.store()
    keys = [f"k{number:04d}" for number in range(1001)]
    # Some of each request; that the others never were makes no difference.
    for key in (keys[0], keys[999], keys[1000]):
        assert isinstance(await store.perform(Put(key, b"x")), WrittenObject)

    assert await store.perform(Remove(keys)) == RemovedObject()
    assert await bucket.keys() == []
    assert store.counts["remove"] == 2


async def test_when_a_large_body_is_written_then_it_is_read_as_it_was(any_bucket: Bucket) -> None:
    """R1: larger than what the SDKs send as one piece."""
    store, _ = any_bucket.store()
    body = bytes(range(256)) * 12_288

    await store.perform(Put("large", body, is_new=True))

    found = await store.perform(Get("large"))
    assert isinstance(found, FoundObject)
    assert found.body == body


async def test_when_the_store_answers_then_its_time_is_known_to_the_second(
    any_bucket: Bucket,
) -> None:
    """T8: this machine's clock is the store's here."""
    store, time = any_bucket.store()

    for _ in range(5):
        await store.perform(Get("missing"))

    assert time.earliest_s() <= SYSTEM_CLOCK.time_s() + 0.1
    assert time.latest_s() >= SYSTEM_CLOCK.time_s() - 0.1
    assert time.latest_s() - time.earliest_s() < 3.0


async def test_when_the_bucket_is_missing_then_it_is_raised_and_names_it(bucket: Bucket) -> None:
    await asyncio.to_thread(bucket.plain.delete_bucket, Bucket=bucket.name)
    store, _ = bucket.store()

    for request in (Put("key", b"x", is_new=True), Get("key"), List("")):
        with pytest.raises(ConfigurationError, match=bucket.name):
            await store.perform(request)


# -- the way to it fails ------------------------------------------------------------------------


async def test_when_the_answer_to_a_write_is_lost_then_the_refusal_may_be_ours(
    bucket: Bucket,
) -> None:
    """T8: the SDK asks again, and is refused because of itself."""
    plan = FaultPlan.script({"PUT": [None, LOSE_RESPONSE]})
    async with FaultProxy(bucket.account.endpoint_url, plan) as proxy:
        store, _ = bucket.store(bucket.account.through(proxy.url))
        # The connection has been used: aiohttp must not repeat by itself either.
        await store.perform(Put("other", b"x"))

        reply = await store.perform(Put("key", b"mine", is_new=True))

        found = await store.perform(Get("key"))
        await bucket.stack.aclose()
    assert reply == ConditionFailed(may_be_ours=True)
    assert isinstance(found, FoundObject)
    assert found.body == b"mine"
    assert store.counts == {"put": 3, "get": 1}
    assert proxy.counts == {"PUT": 3, "GET": 1}


async def test_when_the_request_itself_was_lost_then_the_second_try_writes(bucket: Bucket) -> None:
    """T8."""
    plan = FaultPlan.script({"PUT": [DROP_BEFORE, SERVER_ERROR, THROTTLE]})
    async with FaultProxy(bucket.account.endpoint_url, plan) as proxy:
        store, _ = bucket.store(bucket.account.through(proxy.url))

        reply = await store.perform(Put("key", b"mine", is_new=True))

        await bucket.stack.aclose()
    assert isinstance(reply, WrittenObject)
    assert store.counts == {"put": 4}


@pytest.mark.parametrize(
    "fault",
    [LOSE_RESPONSE, TRUNCATE, DROP_BEFORE, SERVER_ERROR, UNAVAILABLE, THROTTLE],
    ids=lambda fault: f"{fault.kind.value} {fault.status}",
)
async def test_when_the_sdk_gives_up_then_what_became_of_it_is_unknown(
    bucket: Bucket, fault: Fault
) -> None:
    """T8, R51: and reading it shows."""
    plan = FaultPlan.script({"PUT": [None, fault]})
    async with FaultProxy(bucket.account.endpoint_url, plan) as proxy:
        store, _ = bucket.store(bucket.account.through(proxy.url), max_attempts=1)
        await store.perform(Put("other", b"x"))

        reply = await store.perform(Put("key", b"mine", is_new=True))

        found = await store.perform(Get("key"))
        await bucket.stack.aclose()
    # boto3 takes half a head for an answer, which does if the ETag is in it.
    assert isinstance(found, FoundObject) == (fault in (LOSE_RESPONSE, TRUNCATE))
    is_enough = (
        fault is TRUNCATE and isinstance(found, FoundObject) and reply == WrittenObject(found.etag)
    )
    assert isinstance(reply, Unknown) or is_enough
    assert proxy.counts["PUT"] == 2


async def test_when_nobody_listens_then_it_is_unknown(bucket: Bucket) -> None:
    """R51."""
    async with FaultProxy(bucket.account.endpoint_url) as proxy:
        store, _ = bucket.store(bucket.account.through(proxy.url), max_attempts=1)
        await proxy.sever()

        reply = await store.perform(Get("key"))

        await bucket.stack.aclose()
    assert isinstance(reply, Unknown)
    assert isinstance(reply.error, ConnectionFailed)


# -- opening a gateway --------------------------------------------------------------------------


async def test_when_a_gateway_is_opened_then_the_store_is_probed_and_left_as_it_was(
    any_bucket: Bucket,
) -> None:
    """T8."""
    gateway = any_bucket.gateway(prefix="team")

    await gateway.open()

    assert await any_bucket.keys() == []
    assert gateway.request_counts == {"put": 5, "list": 1, "remove": 1}


async def test_when_there_is_no_bucket_then_opening_says_how_to_make_it(bucket: Bucket) -> None:
    """T8: buckets are not made behind anybody's back."""
    await asyncio.to_thread(bucket.plain.delete_bucket, Bucket=bucket.name)

    with pytest.raises(ConfigurationError, match="aws s3 mb s3://bucket"):
        await bucket.gateway().open()


async def test_when_a_bucket_is_examined_then_what_it_does_by_itself_is_told(
    bucket: Bucket,
) -> None:
    """Versions that pile up, and rules that remove messages."""
    await asyncio.to_thread(
        bucket.plain.put_bucket_versioning,
        Bucket=bucket.name,
        VersioningConfiguration={"Status": "Enabled"},
    )
    rule = {
        "ID": "tidy",
        "Status": "Enabled",
        "Filter": {"Prefix": ""},
        "Expiration": {"Days": 7},
    }
    await asyncio.to_thread(
        bucket.plain.put_bucket_lifecycle_configuration,
        Bucket=bucket.name,
        LifecycleConfiguration={"Rules": [rule]},
    )
    gateway = bucket.gateway()
    await gateway.open()

    findings = await gateway.examine([], {})

    assert [finding.level.value for finding in findings] == ["ok", "error", "warning"]
    assert "'tidy' removes objects" in findings[1].detail
    assert "versioning is on" in findings[2].detail


async def test_when_a_bucket_is_plain_then_the_doctor_is_content(any_bucket: Bucket) -> None:
    gateway = any_bucket.gateway()
    await gateway.open()

    [finding] = await gateway.examine([], {})

    assert finding.level.value == "ok"

"""Bodies too large for SQS, in S3: from send to ack, into the dead letters, and when S3 fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import attrs
import pytest

from gateways.sqs import ClaimCheck, SqsGateway
from pump import headers
from pump.events import LeaseLostEvent
from pump.outcome import RejectMessage
from tests.brokers.fault_plan import (
    LOSE_RESPONSE,
    THROTTLE,
    TRUNCATE,
    UNAVAILABLE,
    FaultPlan,
    delay,
)

from .bench import ONE_TRANSPORT, Bench, Job, Shop, raising
from .plain_sqs import headers_of, packed
from .wiretap import Wiretap

pytestmark = pytest.mark.broker
LARGE = "large " * 500_000


@attrs.frozen
class Cloakroom:
    """A bucket of the test's own."""

    bench: Bench
    s3: Any
    bucket: str

    @property
    def claim_check(self) -> ClaimCheck:
        return ClaimCheck(bucket=self.bucket, prefix="bodies/", threshold_bytes=1_000)

    def shop(self, *args: Any, proxy: Wiretap | None = None, **fields: Any) -> Shop:
        aws = self.bench.aws if proxy is None else self.bench.aws.through(proxy.url)
        gateway = SqsGateway(self.bench.settings(aws, claim_check=self.claim_check))
        return self.bench.shop(*args, gateway=gateway, **fields)

    async def keys(self) -> list[str]:
        reply = await asyncio.to_thread(self.s3.list_objects_v2, Bucket=self.bucket)
        return [each["Key"] for each in reply.get("Contents", [])]

    async def clear(self) -> None:
        for key in await self.keys():
            await asyncio.to_thread(self.s3.delete_object, Bucket=self.bucket, Key=key)


@pytest.fixture
async def cloakroom(bench: Bench) -> AsyncIterator[Cloakroom]:
    s3 = bench.aws.client("s3")
    bucket = f"claims-{bench.aws.account_id}"
    await asyncio.to_thread(
        s3.create_bucket,
        Bucket=bucket,
        CreateBucketConfiguration={"LocationConstraint": bench.aws.region},
    )
    room = Cloakroom(bench, s3, bucket)
    yield room
    await room.clear()
    await asyncio.to_thread(s3.delete_bucket, Bucket=bucket)
    s3.close()


async def test_when_a_body_is_too_large_then_its_handler_gets_it_and_the_object_goes_after_the_ack(
    cloakroom: Cloakroom, suffix: str
) -> None:
    """R58: three megabytes through a queue that takes one."""
    seen: list[str] = []
    kept: list[list[str]] = []

    async def handle(job: Job) -> None:
        seen.append(job.task)
        kept.append(await cloakroom.keys())

    shop = cloakroom.shop(handle, queue=f"jobs{suffix}")
    async with shop.working():
        await shop.post(LARGE, "small")
        await shop.diary.until_settled(2)

    assert sorted(seen) == [LARGE, "small"]
    assert [len(keys) for keys in kept] in ([1, 1], [1, 0]), "there until the ack"
    assert await cloakroom.keys() == []
    assert shop.diary.statuses == ["processed", "processed"]


async def test_when_a_large_message_is_rejected_then_its_copy_has_a_body_of_its_own(
    cloakroom: Cloakroom, suffix: str
) -> None:
    """R25, R28: the original's object goes with it, and the dead letter can still be read."""
    shop = cloakroom.shop(
        raising(RejectMessage("no")), queue=f"jobs{suffix}", dead_letter_queue=f"dead{suffix}"
    )
    async with shop.working():
        [id_] = await shop.post(LARGE)
        await shop.diary.until_settled(1)
    [left] = await cloakroom.keys()
    async with cloakroom.shop(queue=f"dead{suffix}").by_hand() as morgue:
        [dead] = await morgue.receive()
        await morgue.ack(dead)

    assert left.startswith("bodies/")
    assert dead.message.id == id_
    assert dead.message.body == b'{"task":"%s"}' % LARGE.encode()
    assert dead.message.headers[headers.REJECTION_REASON] == "DeliveryError"
    assert headers.CLAIM not in dead.message.headers
    assert await cloakroom.keys() == []


async def test_when_the_object_is_gone_then_the_message_is_rejected_with_its_claim(
    cloakroom: Cloakroom, suffix: str
) -> None:
    """Law 4: it will not get better, so it is routed, and not looped."""
    sender = cloakroom.shop(queue=f"jobs{suffix}")
    async with sender.app:
        [id_] = await sender.post(LARGE)
    await cloakroom.clear()
    shop = cloakroom.shop(
        queue=f"jobs{suffix}", dead_letter_queue=f"dead{suffix}", invalid_queue=f"invalid{suffix}"
    )

    async with shop.working():
        await shop.diary.until_settled(1)

    [copy] = await cloakroom.bench.plain.take(f"invalid{suffix}")
    assert packed(copy)["id"] == id_
    assert cloakroom.bucket in headers_of(copy)[headers.CLAIM]
    assert headers_of(copy)[headers.ATTEMPTS] == "1"


async def test_when_a_consumer_has_no_claim_check_then_a_claim_is_unacceptable_not_a_job(
    cloakroom: Cloakroom,
) -> None:
    """R26: an empty body is not what was sent; the object stays for whoever can read it."""
    sender = cloakroom.shop()
    async with sender.app:
        await sender.post(LARGE)
    shop = cloakroom.bench.shop(dead_letter_queue="dead")

    async with shop.working():
        await shop.diary.until_settled(1)

    [copy] = await cloakroom.bench.plain.take("dead")
    assert headers_of(copy)[headers.REJECTION_REASON] == "Unacceptable"
    assert headers.CLAIM in headers_of(copy)
    assert len(await cloakroom.keys()) == 1


async def test_when_a_stranger_names_a_claim_of_another_bucket_then_nothing_is_read_or_deleted(
    cloakroom: Cloakroom,
) -> None:
    """Who may send must not thereby read or delete what we may."""
    claim = '{"bucket": "secrets", "key": "bodies/x", "size": 1, "sha256": "0"}'
    attribute = {headers.CLAIM: {"DataType": "String", "StringValue": claim}}
    async with Wiretap(cloakroom.bench.aws.endpoint_url) as proxy:
        shop = cloakroom.shop(proxy=proxy, dead_letter_queue="dead")
        async with shop.working():
            await cloakroom.bench.plain.send(
                "jobs", '{"task": "work"}', MessageAttributes=attribute
            )
            await shop.diary.until_settled(1)

    assert shop.diary.statuses == ["processed"], "it has a body of its own"
    assert {"GET", "DELETE", "HEAD"}.isdisjoint(proxy.counts)


@ONE_TRANSPORT
async def test_when_s3_fails_for_a_while_then_nothing_is_lost(
    cloakroom: Cloakroom, suffix: str
) -> None:
    """R51: answers to put, get and delete are lost, cut off, throttled and errors."""
    seen: list[str] = []

    async def handle(job: Job) -> None:
        seen.append(job.task)

    faults = [UNAVAILABLE, LOSE_RESPONSE, None, TRUNCATE, THROTTLE]
    plan = FaultPlan.script({"PUT": faults, "GET": faults, "DELETE": faults})
    async with Wiretap(cloakroom.bench.aws.endpoint_url, plan) as proxy:
        shop = cloakroom.shop(handle, proxy=proxy, queue=f"jobs{suffix}")
        async with shop.working() as dispatcher:
            await shop.post(*(f"{number} {LARGE}" for number in range(3)))
            await shop.diary.until_settled(3)
            restarts = dispatcher.performers[0].stats.restarts

    assert sorted(seen) == [f"{number} {LARGE}" for number in range(3)]
    assert restarts == 0
    assert await cloakroom.keys() == []


@ONE_TRANSPORT
async def test_when_s3_is_slow_to_delete_then_the_ack_is_not_taken_for_lost(
    cloakroom: Cloakroom,
) -> None:
    """Law 1: the message is settled when SQS says so, whatever S3 takes for the rest."""
    plan = FaultPlan.script({"DELETE": [delay(12), delay(12), delay(12)]})
    async with Wiretap(cloakroom.bench.aws.endpoint_url, plan) as proxy:
        shop = cloakroom.shop(proxy=proxy, lease=timedelta(seconds=8))
        async with shop.working() as dispatcher:
            ids = await shop.post(*(f"{number} {LARGE}" for number in range(3)))
            await shop.diary.until(lambda: len(shop.diary.outcomes) + lost(shop) == 3)
            stats = dispatcher.performers[0].stats

    assert {each.message_id for each in shop.diary.outcomes} == set(ids)
    assert (shop.diary.statuses, stats.leases_lost) == (["processed"] * 3, 0)
    assert await cloakroom.keys() == []


def lost(shop: Shop) -> int:
    return sum(isinstance(event, LeaseLostEvent) for event in shop.diary.events)


@ONE_TRANSPORT
async def test_when_s3_hangs_then_the_other_messages_are_handled_once_and_in_time(
    cloakroom: Cloakroom, suffix: str
) -> None:
    """Law 3: a body that does not come in time must not cost its companions their leases."""
    handled: list[str] = []

    async def handle(job: Job) -> None:
        handled.append(job.task)

    sender = cloakroom.shop(queue=f"jobs{suffix}")
    async with sender.app:
        for number, task in enumerate([LARGE, "one", "two", "three"]):
            await sender.post(task, group=f"g-{number}")
    plan = FaultPlan.script({"GET": [delay(15)]})
    async with Wiretap(cloakroom.bench.aws.endpoint_url, plan) as proxy:
        shop = cloakroom.shop(
            handle, proxy=proxy, queue=f"jobs{suffix}", lease=timedelta(seconds=12)
        )
        async with shop.working() as dispatcher:
            await shop.diary.until_settled(4)
            stats = dispatcher.performers[0].stats

    assert sorted(handled) == sorted([LARGE, "one", "two", "three"])
    assert (shop.diary.statuses, stats.leases_lost) == (["processed"] * 4, 0)


@ONE_TRANSPORT
async def test_when_the_bucket_refuses_then_the_message_is_not_asked_for_in_a_loop(
    cloakroom: Cloakroom, suffix: str
) -> None:
    """R52: a body that cannot be had is waited for; it comes again later, not at once."""
    sender = cloakroom.shop(queue=f"jobs{suffix}")
    async with sender.app:
        await sender.post(LARGE)
    async with Wiretap(cloakroom.bench.aws.endpoint_url) as proxy:
        proxy.refuse("GET", ["AccessDenied"] * 1_000)
        shop = cloakroom.shop(proxy=proxy, queue=f"jobs{suffix}")
        async with shop.working():
            await proxy.saw("GET", count=3)
            given_back = proxy.asked["ChangeMessageVisibilityBatch"]
            proxy.refuse("GET", [])
            await shop.diary.until_settled(1)

    pauses = [request["Entries"][0]["VisibilityTimeout"] for request in given_back[:2]]
    assert pauses == sorted(pauses)
    assert pauses[-1] > 0
    assert shop.diary.statuses == ["processed"]

"""Rejection on SQS when the way is blocked: the three policies, the spill, and the second time."""

from __future__ import annotations

import pytest
import structlog.testing

from gateways.sqs import SqsGateway
from pump import headers
from pump.capabilities import Capabilities
from pump.clock import SYSTEM_CLOCK
from pump.dispatcher import Sweeper, Swept
from pump.errors import ConnectionFailed
from pump.outcome import RejectionReason, RejectMessage
from pump.ports import AdminPort, ConsumerPort, ProducerPort
from pump.rejection import enrich
from pump.subscription import MakeChannels, OnRoutingFailure, Subscription, dead_letter

from .bench import ONE_TRANSPORT, Bench, raising
from .plain_sqs import headers_of, packed
from .wiretap import Wiretap

pytestmark = [pytest.mark.broker, ONE_TRANSPORT]
DELIVERY_ERROR = RejectionReason.DELIVERY_ERROR


@pytest.mark.parametrize("policy", list(OnRoutingFailure))
async def test_when_the_dead_letter_queue_is_missing_then_the_policy_decides(
    bench: Bench, suffix: str, policy: OnRoutingFailure
) -> None:
    """R32, T1: SPILL and DELETE remove the original, KEEP has it delivered again."""
    await bench.plain.make(f"jobs{suffix}")
    shop = bench.shop(
        raising(RejectMessage("no")),
        queue=f"jobs{suffix}",
        dead_letter_queue=f"missing{suffix}",
        make_channels=MakeChannels.ASSUME,
        on_routing_failure=policy,
        failure=dead_letter(),
    )
    is_kept = policy is OnRoutingFailure.KEEP
    with structlog.testing.capture_logs() as lines:
        async with shop.working():
            [id_] = await shop.post("work")
            await shop.diary.until_settled(2 if is_kept else 1)

    [line, *_] = [line for line in lines if line["event"] == "routing.failed"]
    assert (line["log_level"], line["message_id"]) == ("error", id_)
    assert "QueueNotFound" in line["error"]
    spilled = [each.message.id for each in await shop.spill.all()]
    assert spilled == ([id_] if policy is OnRoutingFailure.SPILL else [])
    statuses = {"spill": "dead-lettered", "keep": "retrying", "delete": "discarded"}
    assert set(shop.diary.statuses) == {statuses[policy.value]}
    assert sum(await bench.plain.depth(f"jobs{suffix}")) == (1 if is_kept else 0)


async def test_when_the_queue_is_back_then_the_spilled_copy_is_sent_with_all_its_metadata(
    bench: Bench, suffix: str
) -> None:
    """R28, T1: not lost, not blocked, and the producer found the queue that was made later."""
    shop = bench.shop(
        raising(RejectMessage("no stock")),
        queue=f"jobs{suffix}",
        dead_letter_queue=f"dead{suffix}",
    )
    gateway = await bench.gateway()
    sweeper = Sweeper(shop.spill, gateway, SYSTEM_CLOCK)
    async with shop.working():
        await bench.plain.delete(f"dead{suffix}")
        [id_] = await shop.post("work")
        await shop.diary.until_settled(1)
        assert len(await shop.spill.all()) == 1
        await bench.plain.make(f"dead{suffix}")

        swept = await sweeper.sweep()

    assert swept == Swept(sent=1)
    assert await shop.spill.all() == []
    [copy] = await bench.plain.take(f"dead{suffix}")
    assert packed(copy)["id"] == id_
    said = headers_of(copy)
    assert (said[headers.REJECTION_DETAIL], said[headers.ORIGINAL_TOPIC]) == (
        "no stock",
        f"jobs{suffix}",
    )


async def test_when_a_queue_that_was_missing_is_there_then_the_next_rejection_finds_it(
    bench: Bench, suffix: str
) -> None:
    """R31: a failed look-up is not remembered."""
    await bench.plain.make(f"jobs{suffix}")
    shop = bench.shop(
        queue=f"jobs{suffix}",
        dead_letter_queue=f"dead{suffix}",
        make_channels=MakeChannels.ASSUME,
    )
    async with shop.by_hand() as consumer:
        first_id, second_id = await shop.post("one", "two", group="g")
        [first] = await consumer.receive()
        await consumer.reject(first)
        await bench.plain.make(f"dead{suffix}")
        [second] = await consumer.receive()
        await consumer.reject(second)

    ids = {first_id, second_id}
    [spilled] = await shop.spill.all()
    [copy] = await bench.plain.take(f"dead{suffix}")
    assert spilled.message.id == first.message.id
    assert packed(copy)["id"] == second.message.id
    assert ids == {first.message.id, second.message.id}
    assert await bench.plain.depth(f"jobs{suffix}") == (0, 0, 0)


async def test_when_nothing_is_rejected_then_the_dead_letter_queue_is_not_even_looked_up(
    bench: Bench,
) -> None:
    """R31: no client, no connection, no look-up before the first rejection, and then one."""
    await bench.plain.make("jobs")
    await bench.plain.make("dead")
    async with Wiretap(bench.aws.endpoint_url) as proxy:
        shop = bench.shop(
            gateway=await bench.gateway(bench.aws.through(proxy.url)),
            dead_letter_queue="dead",
            make_channels=MakeChannels.ASSUME,
        )
        async with shop.by_hand() as consumer:
            await shop.post("one", "two", "three")
            deliveries = [*await consumer.receive(3)]
            while len(deliveries) < 3:
                deliveries += await consumer.receive(3)
            await consumer.ack(deliveries[0])
            looked_up_before = names_asked_for(proxy)
            await consumer.reject(deliveries[1])
            await consumer.reject(deliveries[2])

    assert looked_up_before == ["jobs"]
    assert names_asked_for(proxy) == ["jobs", "dead"]
    assert (await bench.plain.depth("dead"))[0] == 2


def names_asked_for(proxy: Wiretap) -> list[str]:
    return [request["QueueName"] for request in proxy.asked["GetQueueUrl"]]


class ShyGateway:
    """An SQS gateway that cannot make a producer for `dead` when it is first asked."""

    def __init__(self, inner: SqsGateway) -> None:
        self.inner = inner
        self.asked = 0

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    async def open(self) -> None:
        await self.inner.open()

    async def aclose(self) -> None:
        await self.inner.aclose()

    def consumer(self, subscription: Subscription) -> ConsumerPort:
        return self.inner.consumer(subscription)

    def producer(self, queue: str) -> ProducerPort:
        if queue == "dead":
            self.asked += 1
            if self.asked == 1:
                raise ConnectionFailed(queue, "no client could be made")
        return self.inner.producer(queue)

    def admin(self) -> AdminPort:
        return self.inner.admin()


async def test_when_the_producer_cannot_be_made_then_the_next_rejection_makes_it(
    bench: Bench,
) -> None:
    """R31: lazy, and a failed creation is tried again, never cached."""
    gateway = ShyGateway(SqsGateway(bench.settings()))
    shop = bench.shop(gateway=gateway, dead_letter_queue="dead")
    async with shop.by_hand() as consumer:
        await shop.post("one", "two", "three")
        deliveries = [*await consumer.receive(3)]
        while len(deliveries) < 3:
            deliveries += await consumer.receive(3)
        asked_before = gateway.asked
        for delivery in deliveries:
            await consumer.reject(delivery)

    assert asked_before == 0
    assert gateway.asked == 2, "once in vain, and once for the other two"
    assert [each.message.id for each in await shop.spill.all()] == [deliveries[0].message.id]
    copies = await bench.plain.take("dead", 2)
    assert {packed(copy)["id"] for copy in copies} == {
        delivery.message.id for delivery in deliveries[1:]
    }
    assert await bench.plain.depth("jobs") == (0, 0, 0)


async def test_when_a_rejection_is_repeated_after_a_crash_then_a_fifo_queue_has_one_copy(
    bench: Bench,
) -> None:
    """T10: the first copy was sent, and the process died before it deleted the original."""
    shop = bench.shop(queue="jobs.fifo", dead_letter_queue="dead.fifo")
    async with shop.by_hand() as consumer:
        [id_] = await shop.post("work", group="g")
        [first] = await consumer.receive()
        # What a crash leaves behind: the copy is there, and the original comes again.
        copy = enrich(first, DELIVERY_ERROR, "no stock", rejected_at_s=SYSTEM_CLOCK.time_s())
        await shop.app.post(copy, queue="dead.fifo")
        await consumer.abandon(first)
        [again] = await consumer.receive(wait=shop.subscription.lease)
        await consumer.reject(again, detail="no stock")

    assert again.attempt == 2
    [found] = await bench.plain.take("dead.fifo")
    assert packed(found)["id"] == id_
    assert await bench.plain.depth("dead.fifo") == (0, 0, 0)
    assert await bench.plain.depth("jobs.fifo") == (0, 0, 0)


async def test_when_one_is_rejected_again_after_a_redrive_then_its_second_copy_arrives(
    bench: Bench,
) -> None:
    """T10: within five minutes, on FIFO queues; de-duplication must not swallow it."""
    shop = bench.shop(queue="jobs.fifo", dead_letter_queue="dead.fifo")
    async with shop.by_hand() as consumer:
        [id_] = await shop.post("work", group="g")
        copies = []
        for _ in range(3):
            [delivery] = await consumer.receive(wait=shop.subscription.lease)
            await consumer.reject(delivery)
            async with bench.shop(queue="dead.fifo").by_hand() as morgue:
                [dead] = await morgue.receive(wait=shop.subscription.lease)
                copies.append(dead.message)
                # The redrive by hand, as `pump` would do it.
                await shop.app.post(dead.message, queue="jobs.fifo")
                await morgue.ack(dead)

    assert {copy.id for copy in copies} == {id_}
    assert len({copy.deduplication_id for copy in copies}) == 3

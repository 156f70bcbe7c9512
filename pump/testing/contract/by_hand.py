"""Contract: settling by hand. Only what is ours is rejected; observers are told as by a pump."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import random
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import timedelta
from typing import Any

import attrs
import pytest

from ... import headers
from ...consumer import Consumer
from ...context import current_context
from ...errors import ConfigurationError, ConnectionFailed, InvalidReceipt
from ...message import Delivery, Message
from ...outcome import Fate, Refusal, RejectionReason, RejectMessage, Settlement
from ...pipeline import Middleware
from ...ports import ConsumerPort, ProducerPort
from ...session import Session
from ...subscription import MakeChannels, OnRoutingFailure, Subscription
from .rig import ContractTests, Rig
from .sessions import choice, clients, open_sessions
from .workshop import Job, Outage, WatchedGateway, Workshop

NOW = timedelta(0)


class ByHandContract(ContractTests):
    """R6, R23–R31 without a pump."""

    async def test_when_a_delivery_is_not_ours_any_more_then_rejecting_it_copies_nothing(
        self, rig: Rig
    ) -> None:
        """R6, R27, R92: after an ack, twice in a row, at the same time; never a copy too many."""
        shop = by_hand(rig, dead_letter_queue=rig.name("dead"))
        async with consuming(shop) as consumer:
            acked, twice, at_once, beside_an_ack = await take(shop, consumer, 4)

            await consumer.ack(acked)
            await consumer.reject(twice)
            refused = [
                await refusal(consumer.reject(acked)),
                await refusal(consumer.reject(twice)),
                await refusal(consumer.ack(twice)),
                *await refusals(consumer.reject(at_once), consumer.reject(at_once)),
                *await refusals(consumer.reject(beside_an_ack), consumer.ack(beside_an_ack)),
            ]

            assert refused == [True, True, True, False, True, False, True]
            copies = await shop.find(shop.subscription.dead_letter_queue, 4)
        ids = [each.message.id for each in (twice, at_once, beside_an_ack)]
        assert sorted(each.id for each in copies) == sorted(ids)

    async def test_when_another_consumer_has_settled_it_then_rejecting_it_copies_nothing(
        self, rig: Rig
    ) -> None:
        """R6, R27: neither with the delivery itself nor with one that was pickled meanwhile."""
        shop = by_hand(rig, dead_letter_queue=rig.name("dead"))
        async with consuming(shop) as consumer, shop.app.consumer(shop.subscription) as other:
            acked, rejected = await take(shop, consumer, 2)
            pickled = pickle.loads(pickle.dumps(acked))
            await consumer.ack(acked)
            await consumer.reject(rejected)

            refused = [
                await refusal(other.reject(acked)),
                await refusal(other.reject(rejected)),
                await refusal(consumer.reject(pickled)),
            ]

            assert refused == [True, True, True]
            copies = await shop.find(shop.subscription.dead_letter_queue, 2)
        assert [each.id for each in copies] == [rejected.message.id]

    async def test_when_the_original_cannot_be_removed_then_rejecting_again_copies_nothing_more(
        self, rig: Rig
    ) -> None:
        """R27: the connection is lost after the copy was sent; the first reason stays."""
        shop = by_hand(rig, outage=Outage(settle=1), dead_letter_queue=rig.name("dead"))
        async with consuming(shop) as consumer:
            [delivery] = await take(shop, consumer, 1)
            with pytest.raises(ConnectionFailed):
                await consumer.reject(delivery, detail="no stock")
            assert shop.outcomes == []

            routed = await consumer.reject(delivery, detail="again")

            assert (routed.fate, routed.destination) == (Fate.ROUTED, rig.name("dead"))
            [copy] = await shop.find(shop.subscription.dead_letter_queue, 2)
        assert copy.headers[headers.REJECTION_DETAIL] == "no stock"
        assert [each.detail for each in shop.outcomes] == ["no stock"]

    async def test_when_settled_by_hand_then_observers_are_told_as_by_the_pump(
        self, rig: Rig
    ) -> None:
        """R23, R24, R92: id, status, attempt, reason and where it went; once for each."""
        shop = by_hand(rig, dead_letter_queue=rig.name("dead"), invalid_queue=rig.name("bad"))
        async with consuming(shop) as consumer:
            done, put_off, rejected, invalid, untried = await take(shop, consumer, 5)
            await consumer.ack(done)
            await consumer.defer(put_off, timedelta(seconds=rig.tick_s))
            await consumer.reject(rejected, detail="no stock")
            await consumer.reject(invalid, "UNACCEPTABLE", "no such thing")
            await consumer.abandon(untried)

        told = [
            (each.message_id, each.status.value, each.attempt, each.reason, each.destination)
            for each in shop.outcomes
        ]
        dead, bad = rig.name("dead"), rig.name("bad")
        assert told == [
            (done.message.id, "processed", 1, None, None),
            (put_off.message.id, "retrying", 1, None, None),
            (rejected.message.id, "dead-lettered", 1, RejectionReason.DELIVERY_ERROR, dead),
            (invalid.message.id, "dead-lettered", 1, RejectionReason.UNACCEPTABLE, bad),
        ]
        assert [each.detail for each in shop.outcomes[2:]] == ["no stock", "no such thing"]

    @pytest.mark.parametrize(
        ("policy", "fate", "status"),
        [
            (OnRoutingFailure.SPILL, Fate.SPILLED, "dead-lettered"),
            (OnRoutingFailure.KEEP, Fate.KEPT, "retrying"),
            (OnRoutingFailure.DELETE, Fate.DISCARDED, "discarded"),
        ],
    )
    async def test_when_the_copy_of_a_reject_cannot_be_sent_then_its_answer_says_so(
        self, rig: Rig, policy: OnRoutingFailure, fate: Fate, status: str
    ) -> None:
        """R24, R32, T1: the caller and the observers hear the same."""
        shop = by_hand(
            rig,
            dead_letter_queue=rig.name("missing"),
            make_channels=MakeChannels.ASSUME,
            on_routing_failure=policy,
        )
        await rig.open_queue("jobs")
        async with consuming(shop) as consumer:
            [delivery] = await take(shop, consumer, 1)
            routed = await consumer.reject(delivery)

        assert routed.fate is fate
        assert routed.destination == (rig.name("missing") if fate is Fate.SPILLED else None)
        [event] = shop.outcomes
        assert (event.status.value, event.fate) == (status, fate)
        assert event.destination == routed.destination

    async def test_when_rejected_by_hand_then_the_answer_says_where_it_went(self, rig: Rig) -> None:
        """R25, R28, R30: the detail is cut as documented; what is no text is refused first."""
        shop = by_hand(rig, dead_letter_queue=rig.name("dead"))
        async with consuming(shop) as consumer:
            [delivery] = await take(shop, consumer, 1)
            for wrong in ({"reason": None}, {"detail": None}, {"reason": ""}):
                with pytest.raises(ConfigurationError):
                    await consumer.reject(delivery, **wrong)
            routed = await consumer.reject(delivery, "deliveryerror", "x" * 5_000)
            [copy] = await shop.find(shop.subscription.dead_letter_queue, 1)

        assert (routed.fate, routed.destination) == (Fate.ROUTED, rig.name("dead"))
        assert copy.headers[headers.REJECTION_REASON] == "DeliveryError"
        assert copy.headers[headers.REJECTION_DETAIL] == "x" * 1_024
        assert [len(each.detail) for each in shop.outcomes] == [1_024]

    async def test_when_there_is_no_queue_for_it_then_a_reject_discards_and_says_so(
        self, rig: Rig
    ) -> None:
        """R24, R30: it is not dead-lettered, it is gone."""
        shop = by_hand(rig)
        async with consuming(shop) as consumer:
            [delivery] = await take(shop, consumer, 1)
            routed = await consumer.reject(delivery)

        assert (routed.fate, routed.destination) == (Fate.DISCARDED, None)
        assert [(each.status.value, each.fate) for each in shop.outcomes] == [
            ("discarded", Fate.DISCARDED)
        ]

    async def test_when_nothing_was_rejected_then_no_producer_for_its_queue_exists(
        self, rig: Rig
    ) -> None:
        """R31: the queue is made with the channels, its producer by the first reject."""
        shop = by_hand(rig, dead_letter_queue=rig.name("dead"))
        made = ("producer", rig.name("dead"))
        async with consuming(shop) as consumer:
            done, first, second = await take(shop, consumer, 3)
            await consumer.ack(done)

            assert made not in shop.diary
            await consumer.reject(first)
            await consumer.reject(second)

        assert shop.diary.count(made) == 1

    @pytest.mark.parametrize("seed", range(1, 9))
    async def test_when_two_race_over_an_ending_lease_then_what_was_acked_is_no_dead_letter(
        self, rig: Rig, seed: int
    ) -> None:
        """R6, R8, R27, R92: one rejects while its lease ends, the other handles and acks."""
        rig.needs("has_lease_expiry")
        rig.needs_seeds(seed)

        if rig.is_real_time:
            pumps = race_pumps(rig, seed=seed, count=4)
            await asyncio.gather(pumps, race_consumers(rig, seed=seed, count=4))
        else:
            await race_pumps(rig, seed=seed, count=4)
            await race_consumers(rig, seed=seed, count=4)


class SessionByHandContract(ContractTests):
    """R6, R27 in a session."""

    async def test_when_a_session_has_let_go_of_it_then_rejecting_it_copies_nothing(
        self, rig: Rig
    ) -> None:
        """R6, R27, R40: after an ack, twice in a row, and at the same time."""
        queue = await open_sessions(rig, "a1 a2 a3", dead_letter_queue=rig.name("dead"))
        async with clients(queue, 1) as [consumer]:
            session = await consumer.accept_session(choice(rig, "a"), wait=rig.patience)
            assert session is not None
            held = await messages_of(session, rig, 3)
            acked, twice, at_once = held

            await session.ack(acked)
            await session.reject(twice)
            refused = [
                await refusal(session.reject(acked)),
                await refusal(session.reject(twice)),
                *await refusals(session.reject(at_once), session.reject(at_once)),
            ]
            await session.aclose()

        assert refused == [True, True, False, True]
        copies = await queue.dead_letters.take_and_ack(3)
        assert sorted(each.id for each in copies) == sorted(each.message.id for each in held[1:])


def by_hand(rig: Rig, **fields: Any) -> Workshop:
    """A workshop without a pump."""

    async def handle(job: Job) -> None: ...

    return Workshop(rig, handle, **fields)


@contextlib.asynccontextmanager
async def consuming(shop: Workshop) -> AsyncIterator[Consumer]:
    """The workshop's app, open, and a consumer of its queue."""
    async with shop.app, shop.app.consumer(shop.subscription) as consumer:
        yield consumer


async def take(shop: Workshop, consumer: Consumer, count: int) -> list[Delivery]:
    """Send so many messages and receive them, in this order."""
    ids = await shop.post(*["work"] * count)
    taken: list[Delivery] = []
    while len(taken) < count:
        received = await consumer.receive(count - len(taken), wait=shop.rig.patience)
        assert received, f"{len(taken)} of {count} messages came"
        taken += received
    return sorted(taken, key=lambda each: ids.index(each.message.id))


async def messages_of(session: Session, rig: Rig, count: int) -> list[Delivery]:
    """So many messages of a session, received and not settled."""
    taken: list[Delivery] = []
    while len(taken) < count:
        received = await session.receive(count - len(taken), wait=rig.patience)
        assert received, f"{len(taken)} of {count} messages came"
        taken += received
    return taken


async def refusal(settling: Any) -> bool:
    """Whether it was refused as not ours."""
    try:
        await settling
    except InvalidReceipt:
        return True
    return False


async def refusals(*settling: Any) -> list[bool]:
    """The same of several at once, started in this order."""
    return list(await asyncio.gather(*map(refusal, settling)))


# -- races ---------------------------------------------------------------------------------------


async def race_pumps(
    rig: Rig, *, seed: int, count: int, middleware: Sequence[Middleware] = ()
) -> None:
    """Two pumps: the first delivery of each message is rejected about when its lease ends, any
    other one is handled. No message is handled by one and dead-lettered by the other.
    """
    times = Times(rig, seed)

    async def handle(job: Job) -> None:
        context = current_context()
        assert context is not None
        if context.attempt == 1:
            await rig.clock.sleep(times.about_a_lease_s())
            raise RejectMessage("too late, or nearly")

    fields = times.fields("pumps", count)
    shops = [Workshop(rig, handle, middleware=middleware, **fields) for _ in range(2)]
    for shop in shops:
        times.lag(shop)
    one, other = shops
    async with one.working(), other.working():
        ids = await one.post(*["work"] * count)
        await one.until(lambda: ended(shops) >= set(ids), ticks=400)
    await check(shops, ids)


async def race_consumers(rig: Rig, *, seed: int, count: int) -> None:
    """The same by hand."""
    times = Times(rig, seed)
    shops = [by_hand(rig, **times.fields("hands", count)) for _ in range(2)]
    for shop in shops:
        times.lag(shop)

    async def settle(consumer: Consumer, delivery: Delivery) -> None:
        with contextlib.suppress(InvalidReceipt):
            if delivery.attempt > 1:
                await consumer.ack(delivery)
            else:
                await rig.clock.sleep(times.about_a_lease_s())
                await consumer.reject(delivery)

    async def work(consumer: Consumer) -> None:
        async with asyncio.TaskGroup() as group:
            async for delivery in consumer:
                group.create_task(settle(consumer, delivery))

    one, other = shops
    async with consuming(one) as first, consuming(other) as second:
        ids = await one.post(*["work"] * count)
        working = [rig.start(work(each)) for each in (first, second)]
        await one.until(lambda: ended(shops) >= set(ids), ticks=400)
        for task in working:
            task.cancel()
        await asyncio.wait(working)
    await check(shops, ids)


def ended(shops: Iterable[Workshop]) -> set[str]:
    """The messages that are gone, handled or dead-lettered."""
    final = {"processed", "dead-lettered"}
    return {e.message_id for shop in shops for e in shop.outcomes if e.status.value in final}


async def check(shops: Sequence[Workshop], ids: Sequence[str]) -> None:
    """Every message came to one end, and its dead letter is there only if that was it."""
    processed = [
        each.message_id
        for shop in shops
        for each in shop.outcomes
        if each.status.value == "processed"
    ]
    copies = await shops[0].find(shops[0].subscription.dead_letter_queue, len(ids))
    dead = [each.id for each in copies]
    assert set(processed) & set(dead) == set(), "a message that was acked is a dead letter too"
    assert sorted({*processed, *dead}) == sorted(ids)


@attrs.define(eq=False)
class Times:
    """When things happen in a race, by a seed: around the end of a lease, and between calls."""

    rig: Rig
    seed: int
    _random: random.Random = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def fields(self, base: str, count: int) -> dict[str, Any]:
        """What the subscription of a race is made of."""
        return {
            "base": base,
            "dead_letter_queue": self.rig.name(f"{base}-dead"),
            "lease": timedelta(seconds=self.rig.lease_s),
            "renew": False,
            "concurrency": count,
        }

    def about_a_lease_s(self) -> float:
        """A little before its end, at it, or a little after."""
        edge = self._random.choice((-0.2, -0.01, 0.0, 0.01, 0.2))
        return self.rig.lease_s * (1 + edge * self._random.random())

    def lag(self, shop: Workshop) -> None:
        """Have every call take a while, where time costs nothing."""
        gateway = shop.app.built_gateway()
        if not self.rig.is_real_time:
            assert isinstance(gateway, WatchedGateway)
            shop.app.override(gateway=LaggingGateway(gateway, self))

    async def pass_by(self, share: float) -> None:
        """Let up to this share of a lease pass."""
        await self.rig.clock.sleep(self._random.random() * share * self.rig.lease_s)


@attrs.frozen(eq=False)
class LaggingGateway:
    """A gateway whose calls and answers take their time."""

    inner: WatchedGateway
    times: Times

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def consumer(self, subscription: Subscription) -> ConsumerPort:
        return LaggingConsumer(self.inner.consumer(subscription), self.times)

    def producer(self, queue: str) -> ProducerPort:
        producer = self.inner.producer(queue)
        # What the test itself sends arrives at once.
        return LaggingProducer(producer, self.times) if "-dead" in queue else producer


@attrs.frozen(eq=False)
class LaggingConsumer:
    """Settles and extends after a while."""

    inner: ConsumerPort
    times: Times

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        return await self.inner.receive(max_count=max_count, wait_s=wait_s)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        await self.times.pass_by(0.1)
        return await self.inner.settle(settlements)

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> Sequence[Refusal]:
        await self.times.pass_by(0.1)
        return await self.inner.extend(deliveries, lease_s=lease_s)

    async def aclose(self) -> None:
        await self.inner.aclose()


@attrs.frozen(eq=False)
class LaggingProducer:
    """Sends after a while, and says so after another."""

    inner: ProducerPort
    times: Times

    async def send(self, messages: Sequence[Message], *, delay_s: float = 0.0) -> Sequence[str]:
        await self.times.pass_by(0.3)
        ids = await self.inner.send(messages, delay_s=delay_s)
        await self.times.pass_by(0.2)
        return ids

    async def aclose(self) -> None:
        await self.inner.aclose()

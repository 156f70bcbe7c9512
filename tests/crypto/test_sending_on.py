"""What an app posts: requests are always sealed, ready-made messages unless they are already."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateways.memory import MemoryGateway
from pump import App, Command, Message, Subscription
from pump.crypto import Encryption, Key, KeyRing, MalformedEnvelope, PlaintextLooksSealed
from pump.stores.spill import MemorySpill
from pump.subscription import MakeChannels, QueueSpec
from pump.testing.virtual_clock import VirtualClock


class Place(Command):
    """An order."""

    n: int


ORDERS = Subscription(queue="orders", request=Place)


@pytest.fixture
async def app(clock: VirtualClock) -> AsyncIterator[App]:
    made = App(
        MemoryGateway(clock),
        encryption=Encryption(KeyRing(Key.generate("k")), clock=clock),
        spill=MemorySpill(),
        clock=clock,
    )
    made.subscribe(ORDERS)
    async with made:
        yield made


async def peek(app: App) -> list[Message]:
    return list(await app.admin.peek("orders", max_count=100))


async def test_when_requests_and_messages_are_posted_together_then_each_is_sealed_once(
    app: App,
) -> None:
    """R62."""
    await app.post(Place(n=1))
    [sealed] = await peek(app)

    await app.post_all([Place(n=2), sealed, Message(body=b'{"n":3}', type="Place")], queue="orders")

    bodies = [message.body for message in await peek(app)]
    assert [body[:5] for body in bodies] == [b"QRE1\x02"] * 4
    assert len({body for body in bodies if body != sealed.body}) == 2
    async with app.consumer(ORDERS) as consumer:
        deliveries = await consumer.receive(max_count=4)
        assert [(await consumer.read(each)).n for each in deliveries] == [1, 2, 1, 3]


async def test_when_a_sealed_message_is_sent_on_then_it_is_the_same_to_the_last_byte(
    app: App,
) -> None:
    """R62: redrive."""
    await app.post(Place(n=1))
    [sealed] = await peek(app)

    await app.post(sealed, queue="orders")

    _, again = await peek(app)
    assert (again.body, again.id) == (sealed.body, sealed.id)


async def test_when_a_request_is_an_envelope_byte_for_byte_then_it_is_sealed_like_another(
    app: App,
) -> None:
    """T9: the poster knows what came ready-made; the bytes decide nothing."""
    await app.post(Place(n=1))
    [sealed] = await peek(app)

    for body in (sealed.body, b"QRE1", b"QRE1\x01 and more"):
        await app.post(body, queue="orders")

    subscription = Subscription(queue="orders", request=bytes)
    async with app.consumer(subscription) as consumer:
        _, *deliveries = await consumer.receive(max_count=4)
        assert [await consumer.read(each) for each in deliveries] == [
            sealed.body,
            b"QRE1",
            b"QRE1\x01 and more",
        ]
        assert all(each.message.body[:5] == b"QRE1\x02" for each in deliveries)


async def test_when_a_message_only_looks_sealed_then_it_is_not_sent(app: App) -> None:
    """T9."""
    with pytest.raises(MalformedEnvelope):
        await app.post(Message(body=b"QRE1\x01 and more"), queue="orders")

    assert await peek(app) == []


async def test_when_an_app_without_encryption_sends_on_then_only_what_is_sealed_may_look_so(
    app: App, clock: VirtualClock
) -> None:
    """T9: it has no keys, and can tell an envelope from plaintext all the same."""
    await app.post(Place(n=1))
    [sealed] = await peek(app)
    async with App(MemoryGateway(clock), spill=MemorySpill(), clock=clock) as plain:
        await plain.admin.ensure(QueueSpec(name="orders"), MakeChannels.CREATE)

        for body in (b"QRE1", b"QRE1 is how it starts", b"QRE1\x01 and more"):
            for looks_sealed in (Message(body=body), body):
                with pytest.raises(PlaintextLooksSealed):
                    await plain.post(looks_sealed, queue="orders")
        await plain.post(sealed, queue="orders")

        assert [message.body for message in await peek(plain)] == [sealed.body]


async def test_when_a_message_is_rejected_then_its_copy_opens_after_a_redrive(app: App) -> None:
    """R62, T9: with its ciphertext, under its own id."""
    subscription = Subscription(queue="orders", request=Place, dead_letter_queue="dead")
    async with app.consumer(subscription) as consumer:
        await app.post(Place(n=1), group="g", correlation_id="c")
        [delivery] = await consumer.receive()
        await consumer.reject(delivery)
        [dead] = await app.admin.peek("dead", max_count=1)
        assert dead.body == delivery.message.body

        await app.post(dead, queue="orders")

        [redriven] = await consumer.receive()
        assert (await consumer.read(redriven)).n == 1

"""A subscription to `Message` hands every message to its handler as it is."""

from __future__ import annotations

import pytest

from pump import App, Command, Message, Subscription
from pump.crypto import Encryption, Key, KeyRing
from pump.crypto.envelope import NONCE_SIZE, TAG_SIZE, make_header
from pump.testing import Harness


class PlaceOrder(Command):
    order_id: int


def app_that_keeps(kept: list[Message], encryption: Encryption | None = None) -> App:
    app = App("memory://", encryption=encryption)

    async def keep(message: Message) -> None:
        kept.append(message)

    app.register(Message, keep)
    app.subscribe(Subscription(queue="orders", request=Message, dead_letter_queue="orders-dead"))
    return app


@pytest.mark.parametrize(
    "message",
    [
        Message(id="m1", type="PlaceOrder", body=b'{"order_id": 1}', headers={"colour": "red"}),
        Message(id="m2", type="NobodyKnowsIt", body=b"\xff\x00", content_type="image/webp"),
        Message(
            id="m3", body=make_header(b"k", 0, bytes(NONCE_SIZE)) + b"sealed" + bytes(TAG_SIZE)
        ),
        Message(id="m4", body=b"{}", content_type="application/cloudevents+json"),
    ],
    ids=["known", "unknown", "sealed", "cloudevent"],
)
async def test_when_subscribed_to_messages_then_each_comes_as_it_was_sent(message: Message) -> None:
    kept: list[Message] = []

    async with Harness(app_that_keeps(kept)) as harness:
        await harness.send(message, queue="orders")
        await harness.run_until_idle()

    assert kept == [message]


async def test_when_the_app_has_the_key_then_the_message_is_opened_first() -> None:
    kept: list[Message] = []
    app = app_that_keeps(kept, Encryption(KeyRing(Key.generate("k"))))

    async with Harness(app) as harness:
        await harness.send(Message(id="m1", body=b"plain"), queue="orders")
        await harness.run_until_idle()

    assert [each.body for each in kept] == [b"plain"]

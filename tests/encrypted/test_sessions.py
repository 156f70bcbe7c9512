"""Sealed messages in a session: opened by hand, and their nonces noted when they are settled."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pump import App, Subscription
from pump.crypto import Encryption, Key, KeyRing, MemoryNonces, NonceReused, NonceTracking
from pump.stores.spill import MemorySpill
from pump.testing.virtual_clock import VirtualClock
from tests.core.fake_sessions import SessionedGateway


async def test_when_a_sessions_message_was_acked_then_a_copy_of_it_is_refused() -> None:
    """R62, T6: and one that was rejected may come back."""
    clock = VirtualClock()
    gateway = SessionedGateway(clock)
    tracking = NonceTracking(store=MemoryNonces())
    encryption = Encryption(KeyRing(Key.generate("k")), nonces=tracking, clock=clock)
    app = App(gateway, clock=clock, spill=MemorySpill(), encryption=encryption)
    subscription = Subscription(queue="orders", request=dict, dead_letter_queue="dead")

    async def put(id_: str) -> None:
        gateway.put("ada", id_)
        kept = gateway.lines["ada"].messages[-1]
        kept.message = await encryption.encrypt(kept.message, "orders")

    async with app, app.consumer(subscription) as consumer:
        await put("first")
        session = await consumer.accept_session("ada")
        [first] = await session.receive()
        assert await consumer.read(first) == {}
        await session.ack(first)
        copy = replace(first, receipt="another", broker_id="another")
        with pytest.raises(NonceReused):
            await consumer.read(copy)

        await put("second")
        [second] = await session.receive()
        assert await consumer.read(second) == {}
        await session.reject(second)
        await clock.settle()
        redriven = replace(second, receipt="another", broker_id="another")
        assert await consumer.read(redriven) == {}
        await session.aclose()

"""Sealing and opening a kibibyte, and nothing else."""

from __future__ import annotations

from pump import event_loop
from pump.crypto import Encryption, Key, KeyRing
from pump.message import Delivery, Message
from pump.observability.counters import Counters

from ..reading import Reading, Stopwatch

_RUNS = 5
_AT_ONCE = 100


def run(count: int) -> Reading:
    """The cheapest of a few runs, as for watched pumps."""
    runs = [event_loop.run(_measure(count)) for _ in range(_RUNS)]
    return min(runs, key=lambda reading: reading.cpu_s)


async def _measure(count: int) -> Reading:
    encryption = Encryption(KeyRing(Key.generate("benchmark")))
    await encryption.start(Counters(), None)
    # The same few again and again: what is measured is sealing, not the memory of a great many.
    messages = [Message(body=b"x" * 1024, correlation_id="c", group="g") for _ in range(_AT_ONCE)]
    sealed = [await encryption.seal(message, "ticks") for message in messages]
    deliveries = [
        Delivery(message=each, queue="ticks", receipt="r", attempt=1, lease_expires_at_s=1e12)
        for each in sealed
    ]
    watch = Stopwatch()
    with watch.span("seal"):
        for number in range(count):
            await encryption.seal(messages[number % _AT_ONCE], "ticks")
    with watch.span("open"):
        for number in range(count):
            opened = await encryption.unseal(deliveries[number % _AT_ONCE])
            assert len(opened.body) == 1024
    await encryption.aclose()
    return watch.reading(count)

"""Settler: settles messages at the broker, in batches, until it has confirmed.

| a settlement is | when                                  | and then                              |
|-----------------|---------------------------------------|---------------------------------------|
| pending         | submitted                             | flushed with others, by count or age  |
| settled         | the broker confirmed it               | reported, credit given back           |
| pending again   | refused for now, or no answer came    | flushed after a backoff               |
| lost            | refused for good, or its lease ended  | reported; the broker owns the message |
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from ..backoff import RECONNECT
from ..clock import Clock
from ..errors import GatewayError, text_of
from ..message import Delivery
from ..observability import vocabulary
from ..observability.log import get_logger
from ..observability.telemetry import Telemetry
from ..outcome import Refusal, Settlement
from ..ports import ConsumerPort
from ..subscription import Subscription
from ..tasks import Deadlines

_log = get_logger("pump.loop")


class Settler:
    """Batches settlements and retries what was refused while the lease lives."""

    def __init__(
        self,
        port: ConsumerPort,
        subscription: Subscription,
        *,
        batch: int,
        linger_s: float,
        max_calls: int,
        clock: Clock,
        holds: Callable[[Delivery], bool],
        in_flight: Callable[[], int],
        on_settled: Callable[[Sequence[Settlement]], None],
        on_lost: Callable[[Settlement], None],
        on_call_ended: Callable[[asyncio.Task[None]], None],
        telemetry: Telemetry | None = None,
    ) -> None:
        """`on_call_ended` is told of each call that has ended."""
        self._port = port
        self._subscription = subscription
        self._batch = batch
        self._linger_s = linger_s
        self._max_calls = max_calls
        self._timeout_s = subscription.lease.total_seconds()
        self._clock = clock
        self._deadlines = Deadlines(clock, self._timeout_s)
        self._holds = holds
        self._in_flight = in_flight
        self._on_settled = on_settled
        self._on_lost = on_lost
        self._on_call_ended = on_call_ended
        self._telemetry = telemetry
        self._pending: deque[Settlement] = deque()
        self._changed = asyncio.Event()
        self._calls: set[asyncio.Task[None]] = set()
        self._failure_count = 0
        self._under_way: list[list[Settlement]] = []
        self._under_way_count = 0
        self._is_lingering = False
        self._is_flushing = False
        self._all_settled = asyncio.Event()

    @property
    def unsettled_count(self) -> int:
        """Settlements submitted and not confirmed, waiting ones and those under way."""
        return len(self._pending) + self._under_way_count

    def has(self, delivery: Delivery) -> bool:
        """Whether a settlement of this delivery was submitted and is not yet confirmed."""
        return any(
            settlement.delivery is delivery
            for batch in (self._pending, *self._under_way)
            for settlement in batch
        )

    def submit(self, settlement: Settlement) -> None:
        """Have a message settled soon."""
        self._pending.append(settlement)
        # Only the first one, and one that makes lingering pointless, are worth a look.
        if not self._is_worth_lingering if self._is_lingering else len(self._pending) == 1:
            self._changed.set()

    async def run(self) -> None:
        """Settle until cancelled."""
        async with asyncio.TaskGroup() as calls:
            while True:
                await self._wait_for_work()
                batch = self._take_batch()
                if self._max_calls == 1:
                    # One call at a time needs no task of its own.
                    await self._settle(batch)
                    continue
                call = calls.create_task(self._settle(batch), name="settle")
                self._calls.add(call)
                call.add_done_callback(self._call_ended)

    async def flush(self) -> None:
        """Return once everything submitted has been settled or lost; does not linger."""
        self._is_flushing = True
        self._changed.set()
        while self.unsettled_count:
            self._all_settled.clear()
            await self._all_settled.wait()

    async def _wait_for_work(self) -> None:
        while not self._pending or len(self._calls) >= self._max_calls:
            self._changed.clear()
            await self._changed.wait()
        if self._failure_count:
            await self._clock.sleep(self._pause_after_failure_s())
        elif self._linger_s and self._is_worth_lingering:
            await self._linger()

    def _pause_after_failure_s(self) -> float:
        # Short against a lease, so that a broker that is back in time hears of it in time.
        backoff_s = RECONNECT.delay_s(self._failure_count, self._clock.chance())
        return min(backoff_s, self._timeout_s / 8)

    @property
    def _is_worth_lingering(self) -> bool:
        """Whether a batch has room, and messages are in flight that could still join it."""
        return (
            len(self._pending) < self._batch
            and self.unsettled_count < self._in_flight()
            and not self._is_flushing
        )

    async def _linger(self) -> None:
        self._is_lingering = True
        self._changed.clear()
        try:
            async with self._clock.timeout(self._linger_s):
                await self._changed.wait()
        except TimeoutError:
            return
        finally:
            self._is_lingering = False

    def _take_batch(self) -> list[Settlement]:
        pending = self._pending
        batch = [pending.popleft() for _ in range(min(len(pending), self._batch))]
        self._under_way.append(batch)
        self._under_way_count += len(batch)
        return batch

    async def _settle(self, batch: list[Settlement]) -> None:
        held = []
        for settlement in batch:
            if self._holds(settlement.delivery):
                held.append(settlement)
            else:
                self._on_lost(settlement)
        try:
            # A reply that never comes must not keep the other settlements waiting.
            async with self._deadlines.begin():
                refusals = await self._tell_broker(held) if held else ()
        except (GatewayError, TimeoutError) as error:
            self._failure_count += 1
            _log.warning(vocabulary.SETTLE_FAILED, error=text_of(error, repr), count=len(held))
            self._pending.extend(held)
        else:
            refused = {refusal.delivery: refusal.is_final for refusal in refusals}
            self._failure_count = 0 if all(refused.values()) else self._failure_count + 1
            self._report(held, refused)
        self._under_way.remove(batch)
        self._under_way_count -= len(batch)
        self._changed.set()
        if not self.unsettled_count:
            self._all_settled.set()

    async def _tell_broker(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        if self._telemetry is None:
            return await self._port.settle(settlements)
        with self._telemetry.settling(self._subscription, settlements):
            return await self._port.settle(settlements)

    def _report(self, batch: Sequence[Settlement], refused: dict[Delivery, bool]) -> None:
        if not refused:
            self._on_settled(batch)
            return
        self._on_settled([each for each in batch if each.delivery not in refused])
        for settlement in batch:
            is_final = refused.get(settlement.delivery)
            if is_final is True:
                self._on_lost(settlement)
            elif is_final is False:
                self._pending.append(settlement)

    def _call_ended(self, call: asyncio.Task[None]) -> None:
        self._calls.discard(call)
        self._on_call_ended(call)
        self._changed.set()

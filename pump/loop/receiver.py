"""Receiver: keeps the pump's hands full, and no fuller.

Pollers ask for as many messages as there are credits; a broker's error costs a backoff, never
the pump (law 7).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ..backoff import RECONNECT
from ..capabilities import Capabilities
from ..clock import Clock
from ..errors import GatewayError
from ..message import Delivery
from ..observability import vocabulary
from ..observability.log import get_logger
from ..ports import ConsumerPort
from ..subscription import Subscription
from .pollers import adapt_pollers
from .prefetch import adapt_prefetch
from .window import Window

_log = get_logger("pump.loop")


class Receiver:
    """Runs an adaptive number of pollers against a window of credits."""

    def __init__(
        self,
        port: ConsumerPort,
        subscription: Subscription,
        capabilities: Capabilities,
        *,
        clock: Clock,
        ready_count: Callable[[], int],
        on_received: Callable[[Sequence[Delivery]], None],
    ) -> None:
        self._port = port
        self._subscription = subscription
        self._batch = capabilities.receive_batch
        self._max_pollers = capabilities.max_pollers
        self._clock = clock
        self._ready_count = ready_count
        self._on_received = on_received
        self._concurrency = subscription.concurrency
        self._prefetch = subscription.in_hand - subscription.concurrency
        self._max_prefetch = capabilities.receive_batch * capabilities.max_pollers
        self._full_at_s = float("-inf")
        self._window = Window(subscription.in_hand)
        self._pollers: set[asyncio.Task[None]] = set()
        self._target = 1
        self._room = asyncio.Event()

    @property
    def in_hand(self) -> int:
        """Messages held or asked for."""
        return self._window.in_hand

    def give_back(self, count: int) -> None:
        """Messages were settled, or did not come: there is room for as many more."""
        self._window.give(count)
        self._room.set()

    def look_again(self) -> None:
        """No message waits for a worker any more, so that even a small request is worth it."""
        self._room.set()

    def scale(self, concurrency: int) -> None:
        """Have enough in hand for that many workers."""
        self._concurrency = concurrency
        self._resize()

    def _resize(self) -> None:
        self._window.resize(self._concurrency + self._prefetch)
        self._room.set()

    async def run(self) -> None:
        """Receive until cancelled; what a cancelled receive had leased is handed back by it."""
        async with asyncio.TaskGroup() as group:
            self._spawn(group)

    def _spawn(self, group: asyncio.TaskGroup) -> None:
        self._pollers.add(group.create_task(self._poll(group), name="poller"))

    async def _poll(self, group: asyncio.TaskGroup) -> None:
        failure_count = 0
        wait_s = self._subscription.wait.total_seconds()
        while len(self._pollers) <= self._target:
            asked = await self._take_credit()
            try:
                deliveries = await self._port.receive(max_count=asked, wait_s=wait_s)
            except GatewayError as error:
                self.give_back(asked)
                failure_count += 1
                await self._back_off(failure_count, error)
                continue
            if failure_count:
                _log.info(vocabulary.GATEWAY_RECOVERED, subscription=self._subscription.name)
                failure_count = 0
            # Told to all: this poller may be one too many and end, and those that wait for
            # room would wait for ever.
            self.give_back(asked - len(deliveries))
            self._on_received(deliveries)
            if len(deliveries) == asked:
                self._note_full()
            self._target = adapt_pollers(
                self._target, asked=asked, got=len(deliveries), most=self._max_pollers
            )
            if len(self._pollers) < self._target:
                self._spawn(group)
        # At once: two that end in one turn of the loop must not both take the other for enough.
        self._pollers.discard(_this_task())

    def _note_full(self) -> None:
        """There is more where this came from: see whether a larger hand would help."""
        now_s = self._clock.now_s()
        worked_off_s, self._full_at_s = now_s - self._full_at_s, now_s
        if self._subscription.prefetch is None:
            self._prefetch = adapt_prefetch(
                self._prefetch,
                least=self._concurrency,
                most=self._max_prefetch,
                worked_off_s=worked_off_s,
            )
            self._resize()

    async def _take_credit(self) -> int:
        while True:
            asked = self._window.request_size(batch=self._batch, waiting=self._ready_count())
            if asked:
                self._window.take(asked)
                return asked
            self._room.clear()
            await self._room.wait()

    async def _back_off(self, failure_count: int, error: GatewayError) -> None:
        delay_s = RECONNECT.delay_s(failure_count, self._clock.chance())
        _log.warning(
            vocabulary.RECEIVE_FAILED,
            subscription=self._subscription.name,
            queue=self._subscription.queue,
            error=str(error),
            error_type=type(error).__name__,
            retry_in_s=round(delay_s, 3),
        )
        await self._clock.sleep(delay_s)


def _this_task() -> asyncio.Task[None]:
    task = asyncio.current_task()
    assert task is not None
    return task

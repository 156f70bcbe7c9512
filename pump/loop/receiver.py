"""Receiver: keeps the pump's hands full, and no fuller.

Pollers ask for as many messages as there are credits; a broker's error costs a backoff, never
the pump (law 7). Paused, they are gone, and the credits of the receives they had open are back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from ..backoff import RECONNECT, UNREACHABLE
from ..capabilities import Capabilities
from ..clock import Clock
from ..errors import ConnectionFailed, GatewayError, text_of
from ..message import Delivery
from ..observability import vocabulary
from ..observability.log import get_logger
from ..observability.telemetry import Telemetry
from ..ports import ConsumerPort
from ..subscription import Subscription
from .pollers import adapt_pollers
from .polls import Polls
from .prefetch import AttemptBudget, Prefetch
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
        waiting_count: Callable[[], int],
        on_received: Callable[[Sequence[Delivery]], None],
        telemetry: Telemetry | None = None,
    ) -> None:
        self._port = port
        self._subscription = subscription
        self._batch = capabilities.receive_batch
        self._max_pollers = capabilities.max_pollers
        self._clock = clock
        self._ready_count = ready_count
        self._waiting_count = waiting_count
        self._on_received = on_received
        self._telemetry = telemetry
        self._concurrency = subscription.concurrency
        self._prefetch = Prefetch(
            subscription.in_hand - subscription.concurrency,
            # What the pollers can bring at once.
            most=capabilities.receive_batch * capabilities.max_pollers,
        )
        self._is_adaptive = subscription.prefetch is None
        self._budget = AttemptBudget.of(subscription, capabilities)
        self._is_tight = self._budget is not None
        self._window = Window(self._limit)
        self._pollers: set[asyncio.Task[None]] = set()
        self._target = 1
        self._waiting: deque[asyncio.Future[None]] = deque()
        """Pollers without credit, woken one at a time: each that leaves some wakes the next."""
        self._backing_off_count = 0
        self._is_paused = False
        self._told = asyncio.Event()
        self.polls = Polls()
        """How the broker answers."""

    @property
    def in_hand(self) -> int:
        """Messages held or asked for."""
        return self._window.in_hand

    def give_back(self, count: int) -> None:
        """Messages were settled, or did not come: there is room for as many more."""
        self._window.give(count)
        self._wake_poller()

    def look_again(self) -> None:
        """No message waits for a worker any more, so that even a small request is worth it."""
        self._wake_poller()

    def ran_dry(self) -> None:
        """A worker has nothing to do, and nothing waits: see whether a larger hand would help."""
        if self._is_adaptive and self._window.credit < self._batch:
            self._prefetch.ran_dry(least=self._concurrency)
            self._resize()

    def scale(self, concurrency: int) -> None:
        """Have enough in hand for that many workers."""
        self._concurrency = concurrency
        self._resize()

    @property
    def _limit(self) -> int:
        return self._concurrency + (0 if self._is_tight else self._prefetch.size)

    def _spare(self, deliveries: Sequence[Delivery]) -> None:
        """Hold no more than can run while messages come that a hand-back would cost too much."""
        if self._budget is not None and deliveries:
            self._is_tight = any(self._budget.is_nearly_spent(each.attempt) for each in deliveries)
            self._resize()

    def _resize(self) -> None:
        limit = self._limit
        if limit != self._window.limit:
            self._window.resize(limit)
            self._wake_poller()

    @property
    def is_stuck(self) -> bool:
        """Whether there is room for more and nobody asks for it: between two turns of the loop
        that may be, for longer it is a defect of ours.
        """
        is_asking = self.polls.open_count or self._backing_off_count
        return not (is_asking or self._is_paused) and self._affordable() > 0

    def pause(self) -> None:
        """Ask for nothing more: no receive begins from now on, those under way are cancelled."""
        self._is_paused = True
        self._told.set()

    def resume(self) -> None:
        """Receive again."""
        self._is_paused = False
        self._told.set()
        self._wake_poller()

    async def run(self) -> None:
        """Receive until cancelled; what a cancelled receive had leased is handed back by it."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._until(is_paused=False)
                self._spawn(group)
                await self._until(is_paused=True)
                await self._recall_pollers()

    async def _until(self, *, is_paused: bool) -> None:
        while self._is_paused is not is_paused:
            self._told.clear()
            await self._told.wait()

    async def _recall_pollers(self) -> None:
        pollers = list(self._pollers)
        for poller in pollers:
            poller.cancel()
        if pollers:
            await asyncio.wait(pollers)
        self._pollers.clear()
        self._waiting.clear()
        self._target = 1
        self.polls.paused()

    def _spawn(self, group: asyncio.TaskGroup) -> None:
        self._pollers.add(group.create_task(self._poll(group), name="poller"))

    async def _poll(self, group: asyncio.TaskGroup) -> None:
        failure_count = 0
        wait_s = self._subscription.wait.total_seconds()
        while len(self._pollers) <= self._target:
            asked = await self._take_credit()
            asked_at_s = self._clock.now_s()
            self.polls.asked(asked_at_s)
            try:
                deliveries = await self._port.receive(max_count=asked, wait_s=wait_s)
            except asyncio.CancelledError:
                # Of a pump that goes on when it was only paused: what it holds must add up.
                self.polls.recalled()
                self.give_back(asked)
                raise
            except GatewayError as error:
                self.polls.failed(error)
                self.give_back(asked)
                failure_count += 1
                await self._back_off(failure_count, error)
                continue
            self.polls.answered(self._clock.now_s())
            if failure_count:
                _log.info(vocabulary.GATEWAY_RECOVERED, subscription=self._subscription.name)
                failure_count = 0
            if self._telemetry is not None:
                waited_s = self._clock.now_s() - asked_at_s
                self._telemetry.received(self._subscription, deliveries, waited_s=waited_s)
            self._spare(deliveries)
            # Told to all: this poller may be one too many and end, and those that wait for
            # room would wait for ever.
            self.give_back(asked - len(deliveries))
            self._follow_pace(len(deliveries), asked)
            self._on_received(deliveries)
            self._target = adapt_pollers(
                self._target, asked=asked, got=len(deliveries), most=self._max_pollers
            )
            if len(self._pollers) < self._target:
                self._spawn(group)
        # At once: two that end in one turn of the loop must not both take the other for enough.
        self._pollers.discard(_this_task())

    def _follow_pace(self, count: int, asked: int) -> None:
        if self._is_adaptive and count:
            self._prefetch.received(
                count,
                asked=asked,
                waiting=self._waiting_count(),
                now_s=self._clock.now_s(),
                least=self._concurrency,
            )
            self._resize()

    async def _take_credit(self) -> int:
        while True:
            asked = 0 if self._is_paused else self._affordable()
            if asked:
                self._window.take(asked)
                self._wake_poller()
                return asked
            room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(room)
            await room

    def _wake_poller(self) -> None:
        """Have a poller that waits look, if there is something for it. It may be outrun by one
        that came back from a receive, and waits again then.
        """
        while self._waiting and not self._is_paused and self._affordable():
            room = self._waiting.popleft()
            if not room.done():
                room.set_result(None)
                return

    def _affordable(self) -> int:
        return self._window.request_size(batch=self._batch, waiting=self._ready_count())

    async def _back_off(self, failure_count: int, error: GatewayError) -> None:
        backoff = UNREACHABLE if isinstance(error, ConnectionFailed) else RECONNECT
        delay_s = backoff.delay_s(failure_count, self._clock.chance())
        _log.warning(
            vocabulary.RECEIVE_FAILED,
            subscription=self._subscription.name,
            queue=self._subscription.queue,
            error=text_of(error),
            error_type=type(error).__name__,
            retry_in_s=round(delay_s, 3),
        )
        if self._telemetry is not None:
            self._telemetry.failed("receive", self._subscription.queue, error)
        self._backing_off_count += 1
        try:
            await self._clock.sleep(delay_s)
        finally:
            self._backing_off_count -= 1


def _this_task() -> asyncio.Task[None]:
    task = asyncio.current_task()
    assert task is not None
    return task

"""Receiver: keeps as many messages in flight as the pump may have, and no more.

Pollers ask for as many messages as there are credits; a broker's error costs a backoff, never
the pump (law 7). Paused, they are gone, and the credits of the receives they had open are back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

import attrs

from ..backoff import RECONNECT, UNREACHABLE
from ..capabilities import Capabilities
from ..clock import Clock
from ..errors import ConnectionFailed, GatewayError, text_of
from ..message import Delivery
from ..observability import vocabulary
from ..observability.log import get_logger
from ..observability.telemetry import Telemetry
from ..ports import ConsumerPort
from ..subscription import Hybrid, Retry, Subscription

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
        on_poller_ended: Callable[[asyncio.Task[None]], None],
        telemetry: Telemetry | None = None,
    ) -> None:
        """`on_poller_ended` is told of each poller that has ended and was not recalled."""
        self._port = port
        self._subscription = subscription
        self._batch = capabilities.receive_batch
        self._max_pollers = capabilities.max_pollers
        self._clock = clock
        self._ready_count = ready_count
        self._waiting_count = waiting_count
        self._on_received = on_received
        self._on_poller_ended = on_poller_ended
        self._telemetry = telemetry
        self._concurrency = subscription.concurrency
        self._prefetch = Prefetch(
            subscription.max_in_flight - subscription.concurrency,
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
        self.polls = ReceiveHealth()
        """How the broker answers."""

    @property
    def in_flight(self) -> int:
        """Messages held or asked for."""
        return self._window.in_flight

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
        """Have enough in flight for that many workers."""
        self._concurrency = concurrency
        self._resize()

    @property
    def _limit(self) -> int:
        return self._concurrency + (0 if self._is_tight else self._prefetch.size)

    def _spare(self, deliveries: Sequence[Delivery]) -> None:
        """Hold no more than can run while messages come that a hand-back would cost too much."""
        if self._budget is not None and deliveries:
            most = max([each.attempt for each in deliveries])
            self._is_tight = self._budget.is_nearly_spent(most)
            self._resize()

    def _resize(self) -> None:
        limit = self._limit
        if limit != self._window.limit:
            self._window.resize(limit)
            self._wake_poller()

    @property
    def is_stuck(self) -> bool:
        """Whether there is room for more and no receive asks for it: between two turns of the loop
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
            poller.remove_done_callback(self._on_poller_ended)
            poller.cancel()
        if pollers:
            await asyncio.wait(pollers)
        self._pollers.clear()
        self._waiting.clear()
        self._target = 1
        self.polls.paused()

    def _spawn(self, group: asyncio.TaskGroup) -> None:
        poller = group.create_task(self._poll(group), name="poller")
        poller.add_done_callback(self._on_poller_ended)
        self._pollers.add(poller)

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


# Window: credits say how many messages may be in flight.
#
# A credit is taken before a receive asks for a message and given back once the message is
# settled (or did not come). `in_flight` never exceeds the limit that was in force when it was
# taken; after a resize downwards the window waits until enough has come back.


class Window:
    """Counts messages asked for or held, against a limit. Pure."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._in_flight = 0

    @property
    def limit(self) -> int:
        """The most messages in flight."""
        return self._limit

    @property
    def in_flight(self) -> int:
        """Credits out: messages held, or asked for."""
        return self._in_flight

    @property
    def credit(self) -> int:
        """How many more may be asked for."""
        return max(0, self._limit - self._in_flight)

    def take(self, count: int) -> None:
        """Take credits; only what `credit` offers can be had."""
        if not 0 < count <= self.credit:
            raise ValueError(f"{count} credits asked for, {self.credit} to be had")
        self._in_flight += count

    def give(self, count: int) -> None:
        """Give credits back."""
        if not 0 <= count <= self._in_flight:
            raise ValueError(f"{count} credits given back, {self._in_flight} are out")
        self._in_flight -= count

    def resize(self, limit: int) -> None:
        """Change the limit; what is in flight stays so."""
        self._limit = limit

    def request_size(self, *, batch: int, waiting: int) -> int:
        """How many to ask for now: a full batch, or whatever there is room for when no
        received message waits for a worker, else nothing.

        Asking for one message each time one is settled would cost a request a message.
        """
        credit = self.credit
        if credit >= batch:
            return batch
        return credit if waiting == 0 else 0


# Prefetch: how many messages may wait in flight, when the subscription does not say. Pure.
#
# | seen                                                       | then                              |
# |------------------------------------------------------------|-----------------------------------|
# | a worker has nothing to do, nothing waits, and there is no | twice as many: the hand is too    |
# | credit to ask for more, though the queue gave all asked    | small for the way to the broker   |
# | what a full receive brought did not all start in 200 ms    | half as many, so that other       |
# |                                                            | consumers find something to do    |
# | anything else                                              | as many as now                    |
#
# No round trip is measured: near or far, a broker that keeps the workers busy is fast enough.

_SLOW_S = 0.2


@attrs.frozen
class AttemptBudget:
    """Which messages had better not be prefetched, where handing one back costs it an attempt.

    A receive that brings one of them has the pump hold no more than it can run, until one brings
    none. Before the first receive it is not known what comes.
    """

    max_retries: int | None
    max_receive_count: int | None

    @classmethod
    def of(cls, subscription: Subscription, capabilities: Capabilities) -> AttemptBudget | None:
        """None where handing back costs nothing, or attempts are not limited."""
        failure = subscription.failure
        # Without a retry there is none to lose: a message that comes is run once in any case.
        max_retries = (failure.max_retries or None) if isinstance(failure, Retry | Hybrid) else None
        limit = subscription.max_receive_count
        if capabilities.has_uncounted_abandon or (max_retries is None and limit is None):
            return None
        return cls(max_retries, limit)

    def is_nearly_spent(self, attempt: int) -> bool:
        """Whether one more hand-back leaves a message its last run, or none."""
        is_last_retry = self.max_retries is not None and attempt >= self.max_retries
        limit = self.max_receive_count
        return is_last_retry or (limit is not None and attempt >= limit - 1)


class Prefetch:
    """Follows the pace of the handlers and of the broker. Never less than the `least` given."""

    def __init__(self, size: int, *, most: int) -> None:
        self.size = size
        self._most = most
        self._is_there_more = False
        self._received_count = 0
        # The full receive that is being watched: when it came, and how many had come with it.
        self._watched_at_s: float | None = None
        self._watched_count = 0

    def received(self, count: int, *, asked: int, waiting: int, now_s: float, least: int) -> None:
        """A receive brought `count` messages, while `waiting` others were not yet started."""
        started_count = self._received_count - waiting
        self._received_count += count
        self._is_there_more = count == asked
        if not self._is_there_more:
            return
        if self._watched_at_s is not None and started_count < self._watched_count:
            if now_s - self._watched_at_s <= _SLOW_S:
                return
            self.size = max(least, self.size // 2)
        self._watched_at_s = now_s
        self._watched_count = self._received_count

    def ran_dry(self, *, least: int) -> None:
        """A worker has nothing to do, and there is no credit to ask for more."""
        if self._is_there_more:
            self.size = max(least, min(2 * self.size, self._most))
            # Once for a full receive: whether this helped shows with the next.
            self._is_there_more = False


# Pollers: how many receives at once. Pure.
#
# | a receive brought     | then                                                            |
# |-----------------------|-----------------------------------------------------------------|
# | all it asked for      | there may be more: one poller more, up to the gateway's maximum |
# | some                  | as many as now                                                  |
# | nothing               | one fewer, down to one                                          |


def adapt_pollers(target: int, *, asked: int, got: int, most: int) -> int:
    """The number of pollers to have after a receive."""
    if got >= asked:
        return min(target + 1, most)
    if got == 0:
        return max(target - 1, 1)
    return target


# Receive health: whether the broker answers this pump's receives. Pure.
#
# | a receive   | then the broker is                                                          |
# |-------------|-----------------------------------------------------------------------------|
# | is asked    | silent from now on, unless it was so already                                |
# | returns     | heard from: silent anew while others are open, else nothing is expected     |
# | fails       | as silent as before, and one failure more in a row                          |
# | is recalled | as before; with none left, nothing is expected of it                        |
#
# Time alone says nothing: a pump at its limit in flight asks for nothing, however long its handlers
# take, and one that is paused does not either.


class ReceiveHealth:
    """The receives of one pump, whichever of its pollers makes them."""

    def __init__(self) -> None:
        self._open_count = 0
        self._silent_since_s: float | None = None
        self._failures_in_a_row = 0
        self._last_error: Exception | None = None

    @property
    def open_count(self) -> int:
        """Receives under way."""
        return self._open_count

    @property
    def failures_in_a_row(self) -> int:
        """Receives that failed since one last succeeded."""
        return self._failures_in_a_row

    @property
    def last_error(self) -> Exception | None:
        """What the last failure was; None once a receive has succeeded."""
        return self._last_error

    def silence_s(self, now_s: float) -> float:
        """For how long the broker owes an answer."""
        return 0.0 if self._silent_since_s is None else now_s - self._silent_since_s

    def asked(self, now_s: float) -> None:
        """A receive was begun."""
        self._open_count += 1
        if self._silent_since_s is None:
            self._silent_since_s = now_s

    def answered(self, now_s: float) -> None:
        """A receive returned, with messages or without."""
        self._open_count -= 1
        self._failures_in_a_row = 0
        self._last_error = None
        self._silent_since_s = now_s if self._open_count else None

    def failed(self, error: Exception) -> None:
        """A receive failed."""
        self._open_count -= 1
        self._failures_in_a_row += 1
        self._last_error = error

    def recalled(self) -> None:
        """A receive was cancelled."""
        self._open_count -= 1

    def paused(self) -> None:
        """No receive is sent any more."""
        self._silent_since_s = None
        self._failures_in_a_row = 0

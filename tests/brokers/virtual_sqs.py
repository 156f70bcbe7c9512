"""`pump local` in virtual time: a server on the test's own event loop, with real sockets and real
SDKs between it and the gateways, so that a lease of 30 s costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from math import inf
from typing import Any

from gateways._aws.sdk import Boto3, transport_for
from gateways._aws.sdk_transport import SdkTransport
from gateways.sqs import SqsGateway, SqsSettings
from gateways.sqs_server.server import SqsServer
from pump.clock import SYSTEM_CLOCK, Clock, Timer
from pump.ports import ConsumerPort
from pump.serving import ServerOptions
from pump.subscription import Subscription
from pump.testing import VirtualClock
from pump.testing.virtual_clock import START_S, waits_for_a_thread

_LOOK_S = 0.0005
"""How often it looks, in real time, whether calls have ended that are under way; what it decides
does not depend on it.
"""


class NetworkClock(VirtualClock):
    """Time stands still while a request or an answer is on its way.

    So it does unless each connection that a gateway holds is one that waits at the server for
    messages, and the other way round. What a gateway gave up keeps its connection until the
    server knows, or, in a thread, until it is answered.
    """

    def __init__(self) -> None:
        super().__init__()
        self._servers: list[SqsServer] = []
        self._transports: list[SdkTransport] = []
        self._closing_count = 0
        self._passing: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def serving(self, options: ServerOptions) -> AsyncIterator[SqsServer]:
        """A server that lives in this clock's time."""
        server = SqsServer(options, _ServersClock(self))
        await server.open()
        self._servers.append(server)
        try:
            yield server
        finally:
            await server.aclose()
            self._servers.remove(server)

    def gateway(self, settings: SqsSettings) -> SqsGateway:
        """A gateway, unopened, whose calls hold time."""
        transport = transport_for(settings.aws, self)
        assert isinstance(transport, SdkTransport)
        self._transports.append(transport)
        return _Gateway(settings, self, transport=transport)

    async def pass_during(self, closing: Callable[[], Awaitable[None]]) -> None:
        """Have time pass by itself until this has ended, whenever all there is waits for time.

        A test that awaits it cannot advance the clock.
        """
        if self._passing is None:
            self._passing = asyncio.create_task(self._pass(), name="time passes")
        self._closing_count += 1
        try:
            await closing()
        finally:
            self._closing_count -= 1
            if self._closing_count == 0:
                passing, self._passing = self._passing, None
                passing.cancel()

    async def _pass(self) -> None:
        while True:
            await self.settle()
            # A test that advances the clock, or looks what has happened by now, decides.
            is_driven = bool(self._settling)
            if is_driven or not self._fire_next(inf):
                await SYSTEM_CLOCK.sleep(_LOOK_S)

    @property
    def elapsed_s(self) -> float:
        """How much time has passed."""
        return self._elapsed_s

    def _waits_for_a_thread(self, task: asyncio.Task[Any]) -> bool:
        # Its threads wait at the server: what counts of them is their connections.
        return waits_for_a_thread(task, but_in=Boto3.__module__)

    async def _outwait_others(self) -> bool:
        if not self._is_any_on_its_way():
            return False
        while self._is_any_on_its_way():
            await SYSTEM_CLOCK.sleep(_LOOK_S)
        return True

    def _is_any_on_its_way(self) -> bool:
        held = sum(each._connections.in_use for each in self._transports)
        queues = [queue for each in self._servers for queue in each._engine.queues.values()]
        return held != sum(queue.waiting_count for queue in queues)


class _ServersClock(Clock):
    """The same time on the server's machine, which runs on when that of the gateways reboots."""

    def __init__(self, clock: NetworkClock) -> None:
        self._clock = clock

    def now_s(self) -> float:
        return START_S + self._clock.elapsed_s

    def time_s(self) -> float:
        return self._clock.time_s()

    def boot_id(self) -> str:
        return "the server's machine"

    def chance(self) -> float:
        return self._clock.chance()

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        return self._clock.call_later(delay_s, callback)


class _Gateway(SqsGateway):
    """Its consumers wait for polls to end when they close, which takes time."""

    def consumer(self, subscription: Subscription) -> ConsumerPort:
        assert isinstance(self._clock, NetworkClock)
        consumer = super().consumer(subscription)
        vars(consumer)["aclose"] = partial(self._clock.pass_during, consumer.aclose)
        return consumer

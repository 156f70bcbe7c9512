"""Runtime: an app's open parts, from gateway to thread pool, closed in reverse order."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import attrs

from .clock import Clock
from .consumer import Consumer
from .errors import ConfigurationError, UnsupportedOperation
from .events import Event, Observers
from .loop import Pump, PumpStats
from .loop.processing import DeliveryProcessor, Dispatch
from .loop.pump import PumpParts
from .loop.reporting import PortWatch, Reporter, WatchedConsumerPort
from .mapping import Mapper
from .observability.telemetry import Counters, Telemetry
from .pipeline import HandlerFactory, Middleware
from .ports import ConsumerPort, Gateway, PayloadEncryption
from .posting import Poster
from .processor import CommandProcessor, HandlerRegistry
from .rejection import RejectionRouter
from .services import Services
from .session import Sessions
from .stores.handler_times import HandlerTimesFile
from .stores.ledger import Ledger
from .stores.spill import SpillStore
from .subscription import MakeChannels, QueueSpec, Subscription

if TYPE_CHECKING:
    from .outbox.store import Outbox

_MAX_THREADS = 1_000
"""Threads are made as blocking handlers need them, so concurrency, scaled or not, is what bounds
them; this bounds those that timed-out handlers have left behind."""


@attrs.frozen(kw_only=True, eq=False)
class RuntimeParts:
    """What an app declared."""

    gateway: Gateway
    registry: HandlerRegistry
    mapper: Mapper
    middleware: tuple[Middleware, ...]
    factory: HandlerFactory
    subscriptions: tuple[Subscription, ...]
    routes: dict[type, str]
    observers: Observers
    spill: SpillStore
    counters: Counters
    services: Services
    ledger: Ledger | None = None
    outbox: Outbox | None = None


class Runtime:
    """Builds pumps and consumers from open parts. Made by `App`, which also closes it."""

    def __init__(self, parts: RuntimeParts) -> None:
        self._parts = parts
        self._stack = AsyncExitStack()
        self._threads = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="pump-handler")
        self.poster = Poster(
            parts.gateway,
            parts.mapper,
            routes=parts.routes,
            made=_made_queues(parts.subscriptions),
            services=parts.services,
            counters=parts.counters,
            outbox=parts.outbox,
        )
        self.processor = CommandProcessor(
            parts.registry,
            threads=self._threads,
            factory=parts.factory,
            middleware=parts.middleware,
            clock=parts.services.clock,
            poster=self.poster,
        )

    @property
    def gateway(self) -> Gateway:
        """The open gateway."""
        return self._parts.gateway

    @property
    def clock(self) -> Clock:
        """The app's clock."""
        return self._parts.services.clock

    @property
    def spill(self) -> SpillStore:
        """Where rejected messages wait for queues that cannot be reached."""
        return self._parts.spill

    @property
    def handler_times(self) -> HandlerTimesFile | None:
        """Where handler times are recorded; None without a data folder, or where no other process
        shares the queues and could want to know.
        """
        if not self._parts.gateway.capabilities.is_shared:
            return None
        return HandlerTimesFile.beside(self._parts.spill)

    @property
    def telemetry(self) -> Telemetry | None:
        """Measures and traces; None without telemetry."""
        return self._parts.services.telemetry

    @property
    def encryption(self) -> PayloadEncryption | None:
        """What encrypts payloads; None when nothing does."""
        return self._parts.services.encryption

    @property
    def emit(self) -> Callable[[Event], None] | None:
        """Tells the observers; None when there are none."""
        return self._parts.observers.tell if self._parts.observers else None

    async def open(self) -> None:
        """Open the gateway and what belongs to it; on failure nothing stays open."""
        async with AsyncExitStack() as opening:
            await self._open(opening)
            self._stack = opening.pop_all()

    async def _open(self, stack: AsyncExitStack) -> None:
        parts = self._parts
        if parts.services.telemetry is not None:
            await parts.services.telemetry.start(
                parts.counters,
                parts.gateway.capabilities.gateway,
                clock=parts.services.clock,
                # What encrypts counts what is sent and received, with the label `encrypted`.
                counts_messages=parts.services.encryption is None,
            )
            stack.push_async_callback(parts.services.telemetry.aclose)
        if parts.services.encryption is not None:
            stack.push_async_callback(parts.services.encryption.aclose)
            await parts.services.encryption.start(parts.counters, self.emit)
        if parts.ledger is not None:
            stack.push_async_callback(parts.ledger.aclose)
            await parts.ledger.open(parts.gateway.capabilities.gateway, parts.services.clock)
        if parts.outbox is not None:
            stack.push_async_callback(parts.outbox.aclose)
            await parts.outbox.open(parts.services.clock)
        await parts.gateway.open()
        stack.push_async_callback(parts.gateway.aclose)
        stack.push_async_callback(self.poster.aclose)
        # Threads that are left behind must not keep the process; they are told to finish.
        stack.callback(self._threads.shutdown, wait=False, cancel_futures=True)

    async def aclose(self) -> None:
        """Close everything, last opened first."""
        await self._stack.aclose()

    async def make_channels(self, subscription: Subscription) -> None:
        """Create or check the subscription's queues, as it says."""
        check_support(subscription, self._parts.gateway)
        admin = self._parts.gateway.admin()
        for spec in subscription.queue_specs():
            await admin.ensure(spec, subscription.make_channels)

    @property
    def outbox(self) -> Outbox | None:
        """Where messages of the user's transactions wait; None without one."""
        return self._parts.outbox

    def router(self, subscription: Subscription) -> RejectionRouter:
        """A router for the subscription's rejected messages."""
        return RejectionRouter(
            subscription,
            producer_of=self._parts.gateway.producer,
            spill=self._parts.spill,
            services=self._parts.services,
            counters=self._parts.counters,
        )

    def consumer(self, subscription: Subscription) -> Consumer:
        """A consumer by hand."""
        parts, router = self._parts, self.router(subscription)
        reporter = self.reporter(subscription, PumpStats())
        port = parts.gateway.consumer(subscription)
        if parts.services.telemetry is not None:
            port = WatchedConsumerPort(
                port, PortWatch(parts.services.telemetry, subscription, parts.services.clock)
            )
        sessions = Sessions(
            parts.gateway,
            subscription,
            router,
            reporter=reporter,
            services=parts.services,
        )
        return Consumer(
            port,
            subscription,
            router,
            sessions,
            parts.mapper,
            reporter=reporter,
            services=parts.services,
        )

    def reporter(self, subscription: Subscription, stats: PumpStats) -> Reporter:
        """Tells observers, ledger, telemetry and log what became of messages: the same for
        pumps, functions and consumers by hand.
        """
        parts = self._parts
        return Reporter(
            subscription,
            stats,
            self.emit,
            services=parts.services,
            gateway=parts.gateway.capabilities.gateway,
        )

    def delivery_processor(
        self, subscription: Subscription, router: RejectionRouter
    ) -> DeliveryProcessor:
        """What a pump does with each delivery, for those who receive and settle otherwise."""
        max_defer_s = self._parts.gateway.capabilities.max_defer_s
        return DeliveryProcessor(
            self._dispatch(subscription),
            router,
            max_defer_s,
            self._parts.services.clock,
            self._parts.services.telemetry,
        )

    def pump(
        self,
        subscription: Subscription,
        port: ConsumerPort,
        router: RejectionRouter,
        stats: PumpStats,
    ) -> Pump:
        """A pump over a port and a router that the caller closes."""
        parts = self._parts
        pump = Pump(
            PumpParts(
                subscription=subscription,
                capabilities=parts.gateway.capabilities,
                port=port,
                dispatch=self._dispatch(subscription),
                router=router,
                services=parts.services,
                emit=self.emit,
            ),
            stats,
        )
        if parts.services.telemetry is not None:
            parts.services.telemetry.watching(subscription, lambda: pump.in_flight)
        return pump

    def _dispatch(self, subscription: Subscription) -> Dispatch:
        parts = self._parts
        return Dispatch(
            subscription,
            parts.mapper,
            self.processor,
            parts.services.clock,
            parts.services.encryption,
        )


def _made_queues(subscriptions: tuple[Subscription, ...]) -> dict[str, QueueSpec]:
    return {
        spec.name: spec
        for subscription in subscriptions
        if subscription.make_channels is MakeChannels.CREATE
        for spec in subscription.queue_specs()
    }


def check_support(subscription: Subscription, gateway: Gateway) -> None:
    """Raise unless the gateway can do what the subscription asks for."""
    capabilities = gateway.capabilities
    if subscription.ordering not in capabilities.ordering_modes:
        raise UnsupportedOperation(
            capabilities.gateway,
            f"ordering={subscription.ordering.value!r}",
            f"subscription {subscription.name!r} asks for an order the provider does not keep",
        )
    if subscription.ordering_guarantee and not capabilities.has_strict_order:
        raise ConfigurationError(
            "Subscription.ordering_guarantee",
            True,
            f"the {capabilities.gateway} gateway cannot keep strict order for queue "
            f"{subscription.queue!r}; use one that can, or drop the guarantee",
        )
    if subscription.max_receive_count is not None and not capabilities.has_native_redrive:
        raise UnsupportedOperation(
            capabilities.gateway,
            "max_receive_count",
            "the provider moves no messages by itself; use failure=hybrid(max_retries)",
        )

"""App: what a user declares, and runs as the entry point of a program.

A whole program:

    app = App("local://")

    class Greet(Command):
        name: str

    @app.handler
    async def greet(request: Greet) -> None:
        print(f"Hello, {request.name}")

    app.subscribe(Subscription(queue="greetings", request=Greet))

    if __name__ == "__main__":
        app.run()
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import attrs

from .aws_lambda import DEFAULT_MARGIN, LambdaOptions
from .clock import SYSTEM_CLOCK, Clock
from .consumer import Consumer
from .dispatcher import Dispatcher
from .errors import ConfigurationError, PumpError
from .event_loop import run, run_until_signalled
from .events import Observer, Observers
from .gateway_url import checked_gateway, gateway_from_url, without_secrets
from .mapping import Mapper
from .observability import vocabulary
from .observability.log import get_logger
from .observability.telemetry import Counters, Telemetry
from .pipeline import HandlerFactory, Middleware, call_constructor
from .ports import AdminPort, Gateway, PayloadEncryption
from .posting import NO_OPTIONS, Poster, PostOptions
from .processor import CommandProcessor, HandlerRegistry, Handling, request_type_of
from .runtime import Runtime, RuntimeParts
from .services import Services
from .stores.ledger import Ledger
from .stores.spill import PerishableSpill, SpillStore, SqliteSpill, perishing, spill_at
from .subscription import OnRoutingFailure, Subscription

if TYPE_CHECKING:
    from .aws_lambda.handler import EventConsumer, LambdaHandler
    from .blocking import BlockingConsumer, SharedBlockingApp
    from .health.control import Served
    from .health.options import HealthOptions
    from .outbox.relay import Relay
    from .outbox.store import Outbox
    from .spark.run.summary import SparkRun


# App parts: what an app runs on, and how it is exchanged while the app is closed.

_log = get_logger("pump.app")
DEFAULT_SPILL = Path(".pumphouse/spill.db")
SPILL_REMEDY = (
    "mount a volume and name a file on it, App(spill=…), or set on_routing_failure='keep'"
)


class AppParts:
    """Gateway, clock, spill, observers, ledger and telemetry of an app. The base of `App`."""

    def __init__(
        self,
        gateway: str | Gateway,
        *,
        clock: Clock,
        spill: SpillStore | Path | str,
        observers: Iterable[Observer],
        ledger: Ledger | None,
    ) -> None:
        self._gateway = gateway
        self._clock = clock
        self._spill = spill_at(spill) if isinstance(spill, str | Path) else spill
        self._default_spill = self._spill if spill is DEFAULT_SPILL else None
        self._observers = Observers(observers)
        self._ledger = ledger
        if ledger is not None:
            self._observers.add(ledger.record)
        self._subscriptions: list[Subscription] = []
        self._runtime: Runtime | None = None
        self.telemetry: Telemetry | None = None

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        """Every subscription, in the order they were added."""
        return tuple(self._subscriptions)

    @property
    def gateway_name(self) -> str:
        """The gateway's URL without its secrets, or its scheme when an object was given."""
        if isinstance(self._gateway, str):
            return without_secrets(self._gateway)
        return f"{self._gateway.capabilities.gateway}://"

    @property
    def gateway_url(self) -> str | None:
        """The gateway's URL with everything in it, secrets too; None when an object was given."""
        return self._gateway if isinstance(self._gateway, str) else None

    @property
    def clock(self) -> Clock:
        """What the app takes the time from."""
        return self._clock

    @property
    def spill(self) -> SpillStore:
        """Where rejected messages wait for queues that cannot be reached."""
        return self._spill

    @property
    def ledger(self) -> Ledger | None:
        """Where the app keeps what became of messages; None when it does not."""
        return self._ledger

    @property
    def is_spill_chosen(self) -> bool:
        """Whether a place for the spill was given; by default it is on this machine's disk."""
        return self._spill is not self._default_spill

    async def opened_spill(self, gateway: Gateway) -> SpillStore:
        """The spill to run with. Where its place was not chosen, and a spilled message would be
        gone with the container while its original is deleted, one that takes none: originals are
        kept.
        """
        spill = self._default_spill
        if self.is_spill_chosen or not isinstance(spill, SqliteSpill):
            return self._spill
        # Queues of a process die with it: no spill could be all that is left of a message.
        if not gateway.capabilities.is_durable:
            return spill
        danger = await asyncio.to_thread(perishing, spill.path)
        return spill if danger is None else PerishableSpill(spill.path, danger)

    def built_gateway(self) -> Gateway:
        """The gateway as it would be opened, without opening it."""
        if isinstance(self._gateway, str):
            return gateway_from_url(self._gateway, self._clock)
        return checked_gateway(self._gateway, repr(type(self._gateway)), "App(gateway)")

    @contextmanager
    def replacing(
        self,
        *,
        gateway: str | Gateway,
        clock: Clock,
        spill: SpillStore,
        observers: Iterable[Observer] = (),
    ) -> Iterator[Self]:
        """Be this app on other parts until the block ends, and as before afterwards; for tests.

        It is this very app, so handlers that hold it post through the replaced parts too. Nothing
        is written into its ledger meanwhile, nor told to its telemetry.
        """
        with self._as_before_afterwards():
            self._gateway, self._clock, self._spill = gateway, clock, spill
            self._observers, self._ledger = Observers((*self._user_observers(), *observers)), None
            self.telemetry = None
            yield self

    @contextmanager
    def diverted(
        self,
        through: Callable[[Gateway], Gateway],
        ledger: Ledger,
        observers: Iterable[Observer] = (),
    ) -> Iterator[Self]:
        """Be this app with what `through` makes of its gateway, and with another ledger, until
        the block ends; everything else is as it was declared.
        """
        with self._as_before_afterwards():
            self._gateway = through(self.built_gateway())
            told = (*self._user_observers(), ledger.record, *observers)
            self._observers, self._ledger = Observers(told), ledger
            yield self

    def override(
        self,
        *,
        gateway: str | Gateway | None = None,
        concurrency: Mapping[str, int] | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        """Run on another gateway, other concurrencies by subscription, another ledger.

        Before opening. It changes this very app: handlers post through the gateway that runs.
        """
        self._require_closed()
        names = [each.name for each in self._subscriptions]
        for name, count in (concurrency or {}).items():
            if name not in names:
                known = ", ".join(names) or "none"
                raise ConfigurationError("subscription", name, f"the app's own are: {known}")
            position = names.index(name)
            changed = attrs.evolve(self._subscriptions[position], concurrency=count)
            self._subscriptions[position] = changed
        if gateway is not None:
            self._gateway = gateway
        if ledger is not None:
            self._observers, self._ledger = (
                Observers((*self._user_observers(), ledger.record)),
                ledger,
            )

    @contextmanager
    def _as_before_afterwards(self) -> Iterator[None]:
        self._require_closed()
        kept = self._gateway, self._clock, self._spill, self._observers, self._ledger
        telemetry = self.telemetry
        try:
            yield
        finally:
            self._gateway, self._clock, self._spill, self._observers, self._ledger = kept
            self.telemetry = telemetry

    def _user_observers(self) -> list[Observer]:
        """The observers without the ledger."""
        own = None if self._ledger is None else self._ledger.record
        return [each for each in self._observers if each != own]

    def _require_closed(self) -> None:
        if self._runtime is not None:
            raise PumpError("the app is open already; do this before it opens, or after it closed")


def _warn_if_perishable(spill: SpillStore, subscriptions: Iterable[Subscription]) -> None:
    """Say, once, that these would spill and that the place for it is none."""
    if not isinstance(spill, PerishableSpill) or spill.is_told or not _may_spill(subscriptions):
        return
    spill.is_told = True
    _log.warning(
        vocabulary.SPILL_PERISHABLE,
        path=str(spill.path),
        detail=f"it lies on {spill.danger}; what is rejected and cannot be routed is kept",
        remedy=SPILL_REMEDY,
    )


def _may_spill(subscriptions: Iterable[Subscription]) -> bool:
    return any(
        each.on_routing_failure is OnRoutingFailure.SPILL
        and (each.dead_letter_queue is not None or each.invalid_queue is not None)
        for each in subscriptions
    )


_H = TypeVar("_H", bound=Handling)
DEFAULT_GATEWAY = "local://"
_SHARING = threading.Lock()


class App(AppParts):
    """Handlers, subscriptions and a gateway. Declaring performs no I/O; running does.

    `async with app:` opens it for sending; `run` (or `serve`) pumps until a signal.
    """

    def __init__(
        self,
        gateway: str | Gateway = DEFAULT_GATEWAY,
        *,
        middleware: Iterable[Middleware] = (),
        factory: HandlerFactory = call_constructor,
        observers: Iterable[Observer] = (),
        mapper: Mapper | None = None,
        spill: SpillStore | Path | str = DEFAULT_SPILL,
        encryption: PayloadEncryption | None = None,
        telemetry: Telemetry | None = None,
        ledger: Ledger | None = None,
        outbox: Outbox | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(gateway, clock=clock, spill=spill, observers=observers, ledger=ledger)
        self._middleware = tuple(middleware)
        self._factory = factory
        self._mapper = mapper
        self._encryption = encryption
        self._outbox = outbox
        self.telemetry = telemetry
        """Who measures and traces; what is set here counts from the next opening on."""
        self._registry = HandlerRegistry()
        self._routes: dict[type, str] = {}
        self._shared: SharedBlockingApp | None = None
        self.counters = Counters()

    # -- declaring ---------------------------------------------------------------------------

    @property
    def registry(self) -> HandlerRegistry:
        """The handlers of each request type."""
        return self._registry

    def register(
        self, request_type: type, handler: Handling, *, middleware: Sequence[Middleware] = ()
    ) -> None:
        """Have `handler` (a class with `handle`, or a function) handle a request type."""
        self._registry.register(request_type, handler, middleware=middleware)

    def handler(self, handler: _H) -> _H:
        """Register a handler by what it says it handles: `Handler[T]`, or its annotation."""
        self.register(request_type_of(handler), handler)
        return handler

    def subscribe(self, subscription: Subscription) -> Subscription:
        """Consume a queue. Requests of its type are also posted to it, unless routed elsewhere."""
        if any(each.name == subscription.name for each in self._subscriptions):
            raise ConfigurationError(
                "Subscription.name", subscription.name, "is taken; give each subscription its own"
            )
        self._subscriptions.append(subscription)
        if subscription.request is not None:
            self._routes.setdefault(subscription.request, subscription.queue)
        return subscription

    def route(self, request_type: type, queue: str) -> None:
        """Post requests of this type to `queue`."""
        self._routes[request_type] = queue

    def observe(self, observer: Observer) -> None:
        """Tell `observer` of every event (`pump.events`)."""
        self._observers.add(observer)

    def check(self) -> None:
        """Raise what would stop the app from running, without opening anything."""
        mapper = self._built_mapper()
        for subscription in self._subscriptions:
            if subscription.request is not None and subscription.resolver is None:
                self._registry.check(subscription.request)
                mapper.check(subscription.request)

    # -- using -------------------------------------------------------------------------------

    @property
    def processor(self) -> CommandProcessor:
        """Sends, publishes and posts; the app must be open."""
        return self._open_runtime().processor

    @property
    def gateway(self) -> Gateway:
        """The open gateway; the app must be open."""
        return self._open_runtime().gateway

    @property
    def admin(self) -> AdminPort:
        """Looks after the gateway's queues; the app must be open."""
        return self._open_runtime().gateway.admin()

    @property
    def outbox(self) -> Outbox | None:
        """Where messages of the user's transactions wait; None without one."""
        return self._outbox

    async def post(self, request: object, *, transaction: object = None, **options: Any) -> str:
        """Send a request to its queue and return the message's id; `PostOptions` by keyword.

        With a `transaction` it is written into the outbox with whatever else that transaction
        writes, and sent once it has committed.
        """
        chosen = PostOptions(**options) if options else NO_OPTIONS
        return await self.processor.post(request, chosen, transaction=transaction)

    async def post_all(
        self, requests: Sequence[object], *, transaction: object = None, **options: Any
    ) -> Sequence[str]:
        """Send many requests in as few round trips as the gateway allows; with a `transaction`,
        as `post`.
        """
        poster, chosen = self.poster, PostOptions(**options)
        if transaction is None:
            return await poster.post_all(requests, chosen)
        return await poster.deposit(requests, chosen, transaction)

    @property
    def poster(self) -> Poster:
        """What requests are posted through; the app must be open."""
        return self._open_runtime().poster

    def relay(self) -> Relay:
        """What sends from the outbox; each dispatcher runs one. The app must be open."""
        return self.poster.relay()

    @asynccontextmanager
    async def consumer(self, subscription: Subscription) -> AsyncIterator[Consumer]:
        """Consume a queue by hand; makes its channels first."""
        runtime = self._open_runtime()
        _warn_if_perishable(runtime.spill, [subscription])
        await runtime.make_channels(subscription)
        consumer = runtime.consumer(subscription)
        try:
            yield consumer
        finally:
            await consumer.aclose()

    @contextmanager
    def blocking_consumer(self, subscription: Subscription) -> Iterator[BlockingConsumer]:
        """Consume a queue by hand in a program without an event loop; every call waits.

        Opens the app, on an event loop in a thread of its own, and closes it at the end; several
        such consumers, in one thread or in many, share both. To post as well: `BlockingApp`.
        """
        from .blocking import SharedBlockingApp

        if _is_loop_running():
            raise PumpError("a blocking consumer would stop the event loop; use app.consumer(…)")
        with _SHARING:
            if self._shared is None:
                self._shared = SharedBlockingApp(self)
        with self._shared.opened() as blocking, blocking.consumer(subscription) as consumer:
            yield consumer

    def dispatcher(self, subscriptions: Sequence[Subscription] | None = None) -> Dispatcher:
        """A dispatcher for all subscriptions, or for these; the app must be open."""
        self.check()
        runtime = self._open_runtime()
        chosen = self._subscriptions if subscriptions is None else subscriptions
        _warn_if_perishable(runtime.spill, chosen)
        return Dispatcher(runtime, chosen)

    @asynccontextmanager
    async def pumping(self) -> AsyncIterator[Dispatcher]:
        """Pump beside the body of the block, and drain at its end; the app must be open.

        When all pumps have stopped for good, the body is cancelled and their failure raised.
        """
        dispatcher = self.dispatcher()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(dispatcher.run(), name="dispatcher")
                await dispatcher.channels_made.wait()
                try:
                    yield dispatcher
                finally:
                    dispatcher.drain()
        except BaseExceptionGroup as failures:
            if len(failures.exceptions) == 1:
                raise failures.exceptions[0] from None
            raise

    async def serve(
        self, *, until_empty: bool = False, health: HealthOptions | None = None
    ) -> Dispatcher:
        """Pump until SIGTERM or SIGINT, drain, and return the dispatcher with its statistics.

        A second signal stops at once; what was in flight is handed back. `until_empty` drains by
        itself as soon as the queues are empty. `health` says where probes and control are
        served, from before the queues are made until after the drain.
        """
        async with self:
            dispatcher = self.dispatcher()
            async with self.serving_health(dispatcher, health):
                await run_until_signalled(dispatcher, until_empty=until_empty)
            return dispatcher

    def run(self, *, until_empty: bool = False, health: HealthOptions | None = None) -> None:
        """Serve, as the entry point of a program; on uvloop where it is installed."""
        run(self.serve(until_empty=until_empty, health=health))

    def serving_health(
        self, dispatcher: Dispatcher, options: HealthOptions | None
    ) -> AbstractAsyncContextManager[Served]:
        """Serve probes and control while the block runs, and say where; without options nothing."""
        from .health.control import serving_health

        return serving_health(dispatcher, options, gateway=self.gateway_name)

    def lambda_handler(
        self, *, partial_batches: bool = True, margin: timedelta = DEFAULT_MARGIN
    ) -> LambdaHandler:
        """The function for AWS Lambda to call with SQS events: `(event, context) -> response`.

        Its response names the messages that are to come again, so the event source mapping must
        have `ReportBatchItemFailures`: without it Lambda removes these too. Where it cannot have
        it, `partial_batches=False` raises `BatchFailed` instead, and all of them come again that
        we could not remove ourselves. `margin` before the function's end nothing is started,
        and handlers that run are cancelled.

        Nothing is opened or checked before the first event.
        """
        from .aws_lambda.handler import LambdaHandler

        return LambdaHandler(self, LambdaOptions(partial_batches=partial_batches, margin=margin))

    def event_consumer(self, options: LambdaOptions) -> EventConsumer:
        """What handles events for `lambda_handler`; the app must be open.

        `UnsupportedOperation` when no function can be invoked with the gateway's messages.
        """
        from .aws_lambda.handler import EventConsumer

        self.check()
        options = attrs.evolve(options, is_spill_durable=self.is_spill_chosen)
        return EventConsumer(self._open_runtime(), self._subscriptions, options)

    def run_on_spark(self, spark: Any, **options: Any) -> SparkRun:
        """Pump in tasks of a Spark session, and return what was done; `SparkRunOptions` by keyword.

        Each task is a bounded run of the ordinary pump, and every outcome is on the disk of the
        ledger before its message is removed. A task that dies has its messages come again: at
        most `flush` of each subscription are handled twice, and none is lost. The gateway must
        be one that other machines can reach, and the ledger's folder one that they all see.

        Raises what would stop the app from running, before anything is started, and at the end
        whatever made a pump stop for good.
        """
        from .spark.run import run_on_spark

        return run_on_spark(self, spark, **options)

    async def __aenter__(self) -> Self:
        self._require_closed()
        gateway = self.built_gateway()
        runtime = Runtime(
            RuntimeParts(
                gateway=gateway,
                registry=self._registry,
                mapper=self._built_mapper(),
                middleware=self._middleware,
                factory=self._factory,
                subscriptions=self.subscriptions,
                routes=self._routes,
                observers=self._observers,
                spill=await self.opened_spill(gateway),
                counters=self.counters,
                services=Services(
                    clock=self._clock, telemetry=self.telemetry, encryption=self._encryption
                ),
                ledger=self._ledger,
                outbox=self._outbox,
            )
        )
        _warn_if_perishable(runtime.spill, self.subscriptions)
        await runtime.open()
        self._runtime = runtime
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            await runtime.aclose()

    def _built_mapper(self) -> Mapper:
        mapper = self._mapper or Mapper(clock=self._clock)
        types: dict[type, None] = dict.fromkeys(
            (*mapper.types, *self._registry.request_types, *self._routes)
        )
        known: tuple[type, ...] = tuple(types)
        return attrs.evolve(mapper, types=known)

    def _open_runtime(self) -> Runtime:
        if self._runtime is None:
            raise PumpError("the app is not open; use it inside `async with app:`")
        return self._runtime


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True

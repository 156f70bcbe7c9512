"""App: what a user declares, and runs as the entry point of a program.

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
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import attrs

from .aws_lambda.options import DEFAULT_MARGIN, LambdaOptions
from .clock import SYSTEM_CLOCK, Clock
from .consumer import Consumer
from .dispatcher import Dispatcher
from .errors import ConfigurationError, PumpError
from .events import Observer
from .gateway_url import gateway_from_url, without_secrets
from .mapping import Mapper
from .observability.counters import Counters
from .observing import Observers
from .pipeline import HandlerFactory, Middleware, call_constructor
from .ports import AdminPort, Gateway
from .posting import NO_OPTIONS, PostOptions
from .processor import CommandProcessor
from .registry import Handling, Registry, request_type_of
from .runtime import Runtime, RuntimeParts
from .signal_handling import run_until_signalled
from .stores.spill import SpillStore, SqliteSpill
from .subscription import Subscription

if TYPE_CHECKING:
    from .aws_lambda.consumer import EventConsumer
    from .aws_lambda.handler import LambdaHandler

_H = TypeVar("_H", bound=Handling)
DEFAULT_GATEWAY = "local://"
DEFAULT_SPILL = Path(".pumphouse/spill.db")


class App:
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
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._gateway = gateway
        self._middleware = tuple(middleware)
        self._factory = factory
        self._observers = Observers(observers)
        self._mapper = mapper
        self._spill = SqliteSpill(spill) if isinstance(spill, str | Path) else spill
        self._default_spill = self._spill if spill is DEFAULT_SPILL else None
        self._clock = clock
        self._registry = Registry()
        self._subscriptions: list[Subscription] = []
        self._routes: dict[type, str] = {}
        self._runtime: Runtime | None = None
        self.counters = Counters()

    # -- declaring ---------------------------------------------------------------------------

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        """Every subscription, in the order they were added."""
        return tuple(self._subscriptions)

    @property
    def registry(self) -> Registry:
        """The handlers of each request type."""
        return self._registry

    @property
    def gateway_name(self) -> str:
        """The gateway's URL without its secrets, or its scheme when an object was given."""
        if isinstance(self._gateway, str):
            return without_secrets(self._gateway)
        return f"{self._gateway.capabilities.gateway}://"

    @property
    def clock(self) -> Clock:
        """What the app takes the time from."""
        return self._clock

    @property
    def spill(self) -> SpillStore:
        """Where rejected messages wait for queues that cannot be reached."""
        return self._spill

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

        It is this very app, so handlers that hold it post through the replaced parts too.
        """
        self._require_closed()
        kept = self._gateway, self._clock, self._spill, self._observers
        self._gateway, self._clock, self._spill = gateway, clock, spill
        self._observers = Observers((*self._observers, *observers))
        try:
            yield self
        finally:
            self._gateway, self._clock, self._spill, self._observers = kept

    def override(
        self, *, gateway: str | Gateway | None = None, concurrency: Mapping[str, int] | None = None
    ) -> None:
        """Run on another gateway, or with other concurrencies by subscription; before opening.

        It changes this very app: handlers that hold it post through the gateway that runs.
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

    async def post(self, request: object, **options: Any) -> str:
        """Send a request to its queue and return the message's id; `PostOptions` by keyword."""
        return await self.processor.post(request, PostOptions(**options) if options else NO_OPTIONS)

    async def post_all(self, requests: Sequence[object], **options: Any) -> Sequence[str]:
        """Send many requests in as few round trips as the gateway allows."""
        return await self._open_runtime().poster.post_all(requests, PostOptions(**options))

    @asynccontextmanager
    async def consumer(self, subscription: Subscription) -> AsyncIterator[Consumer]:
        """Consume a queue by hand; makes its channels first."""
        runtime = self._open_runtime()
        await runtime.make_channels(subscription)
        consumer = runtime.consumer(subscription)
        try:
            yield consumer
        finally:
            await consumer.aclose()

    def dispatcher(self) -> Dispatcher:
        """A dispatcher for all subscriptions; the app must be open."""
        self.check()
        return Dispatcher(self._open_runtime(), self._subscriptions)

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

    async def serve(self, *, until_empty: bool = False) -> Dispatcher:
        """Pump until SIGTERM or SIGINT, drain, and return the dispatcher with its statistics.

        A second signal stops at once; what was in hand is handed back. `until_empty` drains by
        itself as soon as the queues are empty.
        """
        async with self:
            dispatcher = self.dispatcher()
            await run_until_signalled(dispatcher, until_empty=until_empty)
            return dispatcher

    def run(self, *, until_empty: bool = False) -> None:
        """Serve, as the entry point of a program."""
        asyncio.run(self.serve(until_empty=until_empty))

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
        from .aws_lambda.consumer import EventConsumer

        self.check()
        is_durable = self._spill is not self._default_spill
        options = attrs.evolve(options, is_spill_durable=is_durable)
        return EventConsumer(self._open_runtime(), self._subscriptions, options)

    async def __aenter__(self) -> Self:
        self._require_closed()
        runtime = Runtime(
            RuntimeParts(
                gateway=self._built_gateway(),
                registry=self._registry,
                mapper=self._built_mapper(),
                middleware=self._middleware,
                factory=self._factory,
                subscriptions=self.subscriptions,
                routes=self._routes,
                observers=self._observers,
                spill=self._spill,
                counters=self.counters,
                clock=self._clock,
            )
        )
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

    def _built_gateway(self) -> Gateway:
        if isinstance(self._gateway, str):
            return gateway_from_url(self._gateway, self._clock)
        return self._gateway

    def _built_mapper(self) -> Mapper:
        mapper = self._mapper or Mapper(clock=self._clock)
        types: dict[type, None] = dict.fromkeys(
            (*mapper.types, *self._registry.request_types, *self._routes)
        )
        known: tuple[type, ...] = tuple(types)
        return attrs.evolve(mapper, types=known)

    def _require_closed(self) -> None:
        if self._runtime is not None:
            raise PumpError("the app is open already; do this before it opens, or after it closed")

    def _open_runtime(self) -> Runtime:
        if self._runtime is None:
            raise PumpError("the app is not open; use it inside `async with app:`")
        return self._runtime

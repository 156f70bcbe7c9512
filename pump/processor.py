"""CommandProcessor: the one door to handlers, and to queues.

`send` runs the one handler of a request here and now, `publish` all of an event's, `post` sends
the request through a gateway to be handled elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from concurrent.futures import Executor
from typing import Any, Final

from .clock import SYSTEM_CLOCK, Clock
from .context import Context
from .errors import ConfigurationError, HandlerNotFound, TooManyHandlers
from .message import Delivery
from .pipeline import HandlerFactory, Invoke, Middleware, call_constructor, compose, invoker
from .posting import NO_OPTIONS, Poster, PostOptions
from .registry import Registry
from .requests import Event
from .subscription import Subscription

_Pipelines = tuple[tuple[str, Invoke], ...]


ENDS_OF_THE_PROGRAM: Final = (SystemExit, KeyboardInterrupt)
"""What a handler raises to end not its message but the process."""


class CommandProcessor:
    """Runs requests through their pipelines. Sync and async handlers alike."""

    def __init__(
        self,
        registry: Registry,
        *,
        threads: Executor | None = None,
        factory: HandlerFactory = call_constructor,
        middleware: Sequence[Middleware] = (),
        clock: Clock = SYSTEM_CLOCK,
        poster: Poster | None = None,
    ) -> None:
        self._registry = registry
        self._threads = threads
        self._factory = factory
        self._middleware = tuple(middleware)
        self._clock = clock
        self._poster = poster
        self._pipelines: dict[type, _Pipelines] = {}
        self._compiled_version = registry.version

    async def send(self, request: object) -> Any:
        """Run the request's one handler and return what it returns.

        Raises `HandlerNotFound` or `TooManyHandlers`, and whatever the handler raises.
        """
        [(name, invoke)] = self._exactly_one(type(request))
        return await invoke(request, self._context(name))

    async def publish(self, event: object) -> None:
        """Run every handler of the event, concurrently, to its end.

        Failures are raised together as an ExceptionGroup; an event nobody handles is no error.
        """
        await self._run_all(event, self._compiled(type(event)), None, None)

    async def post(self, request: object, options: PostOptions = NO_OPTIONS) -> str:
        """Send the request to its queue and return the message's id once it is accepted."""
        if self._poster is None:
            raise ConfigurationError(
                "CommandProcessor.poster", None, "post() needs a gateway; use an App's processor"
            )
        return await self._poster.post(request, options)

    async def dispatch(
        self, request: object, delivery: Delivery, subscription: Subscription
    ) -> None:
        """Handle a request that arrived: events by all handlers, everything else by one."""
        pipelines = self._compiled(type(request))
        if len(pipelines) == 1:
            [(name, invoke)] = pipelines
            await invoke(request, self._context(name, delivery, subscription))
        elif pipelines and isinstance(request, Event):
            await self._run_all(request, pipelines, delivery, subscription)
        else:
            self._exactly_one(type(request))

    async def _run_all(
        self,
        event: object,
        pipelines: _Pipelines,
        delivery: Delivery | None,
        subscription: Subscription | None,
    ) -> None:
        results = await asyncio.gather(
            *(
                _contained(invoke(event, self._context(name, delivery, subscription)))
                for name, invoke in pipelines
            ),
            return_exceptions=True,
        )
        failures = [result for result in results if isinstance(result, BaseException)]
        if failures:
            for failure in failures:
                if isinstance(failure, ENDS_OF_THE_PROGRAM):
                    raise failure
            raise BaseExceptionGroup(
                f"{len(failures)} of {len(pipelines)} handlers of {type(event).__qualname__}",
                failures,
            )

    def _context(
        self,
        handler: str,
        delivery: Delivery | None = None,
        subscription: Subscription | None = None,
    ) -> Context:
        return Context(
            handler=handler,
            delivery=delivery,
            subscription=subscription,
            processor=self,
            clock=self._clock,
        )

    def _exactly_one(self, request_type: type) -> _Pipelines:
        pipelines = self._compiled(request_type)
        if not pipelines:
            raise HandlerNotFound(request_type.__qualname__)
        if len(pipelines) > 1:
            names = tuple(name for name, _ in pipelines)
            raise TooManyHandlers(request_type.__qualname__, names)
        return pipelines

    def _compiled(self, request_type: type) -> _Pipelines:
        if self._compiled_version != self._registry.version:
            self._pipelines.clear()
            self._compiled_version = self._registry.version
        known = self._pipelines.get(request_type)
        if known is None:
            known = tuple(
                (
                    each.name,
                    compose(
                        invoker(each.handler, factory=self._factory, threads=self._threads),
                        (*self._middleware, *each.middleware),
                    ),
                )
                for each in self._registry.of(request_type)
            )
            self._pipelines[request_type] = known
        return known


async def _contained(handling: Awaitable[Any]) -> Any:
    """Return what would break off the event loop if it ended a task of its own."""
    try:
        return await handling
    except ENDS_OF_THE_PROGRAM as error:
        return error

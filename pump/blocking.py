"""Blocking: the same app for programs without an event loop. A thin face, no second pump.

To consume by hand:

    with app.blocking_consumer(subscription) as consumer:
        for delivery in consumer:
            consumer.ack(delivery)

To post as well:

    with BlockingApp(app) as blocking:
        blocking.post(PlaceOrder(order_id="1"))
        with blocking.consumer(subscription) as consumer:
            for delivery in consumer.receive(max_count=10):
                consumer.ack(delivery)
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, overload

from .consumer import Consumer
from .errors import ConfigurationError, PumpError
from .message import Delivery, Message
from .outcome import Reason, RejectionReason
from .posting import PostOptions
from .rejection import Routed
from .session import Session
from .subscription import Subscription

if TYPE_CHECKING:
    from .app import App

_T = TypeVar("_T")


class Portal:
    """One event loop in a thread of its own; any number of threads may call into it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="pump-portal", daemon=True)
        self._breaking: Future[None] = Future()
        """Fails when a task breaks out of the loop; then there is another one."""
        self._broken_by: BaseException | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Start the loop."""
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, _T], *, timeout_s: float | None = None) -> _T:
        """Run a coroutine over there and wait for it here, for at most `timeout_s`.

        Interrupted (Ctrl-C) or too late (TimeoutError), it is cancelled over there before the
        error goes on. A SystemExit over there ends the calls under way here, not the loop.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise PumpError("a blocking call on the event loop would wait for itself; use App")
        if self._is_stopped:
            work.close()
            raise PumpError("the app is closed; make this call inside its `with` block")
        breaking = self._breaking
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            ends: list[Future[Any]] = [future, breaking]
            wait(ends, timeout_s, return_when=FIRST_COMPLETED)
            if not future.done() and breaking.done():
                breaking.result()
            return future.result(0)
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """Stop the loop and wait for its thread; calls under way fail."""
        self._is_stopped = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._breaking.set_exception(PumpError("the event loop was stopped during the call"))

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._is_stopped:
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:
                # asyncio lets these out of its loop, again from each task that waits for the one
                # that raised it; the waiting thread would never know.
                if error is not self._broken_by:
                    self._broken_by = error
                    broken, self._breaking = self._breaking, Future()
                    broken.set_exception(error)


class _Receiver(Protocol):
    """What `Consumer` and `Session` have in common."""

    async def receive(self, max_count: int, *, wait: timedelta | None) -> list[Delivery]: ...
    async def ack(self, delivery: Delivery) -> None: ...
    async def defer(self, delivery: Delivery, delay: timedelta) -> None: ...
    async def abandon(self, delivery: Delivery) -> None: ...
    async def reject(self, delivery: Delivery, reason: Reason, detail: str) -> Routed: ...


class BlockingReceiver:
    """Receives and settles; every method waits."""

    def __init__(self, receiver: _Receiver, portal: Portal) -> None:
        self._receiver = receiver
        self._portal = portal

    def receive(self, max_count: int = 1, *, wait: timedelta | None = None) -> list[Delivery]:
        """As `Consumer.receive` or `Session.receive`."""
        return self._portal.call(self._receiver.receive(max_count, wait=wait))

    def ack(self, delivery: Delivery) -> None:
        """As `Consumer.ack` or `Session.ack`."""
        self._portal.call(self._receiver.ack(delivery))

    def defer(self, delivery: Delivery, delay: timedelta = timedelta(0)) -> None:
        """As `Consumer.defer` or `Session.defer`."""
        self._portal.call(self._receiver.defer(delivery, delay))

    def abandon(self, delivery: Delivery) -> None:
        """As `Consumer.abandon` or `Session.abandon`."""
        self._portal.call(self._receiver.abandon(delivery))

    def reject(
        self,
        delivery: Delivery,
        reason: Reason = RejectionReason.DELIVERY_ERROR,
        detail: str = "",
    ) -> Routed:
        """As `Consumer.reject` or `Session.reject`."""
        return self._portal.call(self._receiver.reject(delivery, reason, detail))


class BlockingSession(BlockingReceiver):
    """A `Session` whose methods wait."""

    def __init__(self, session: Session, portal: Portal) -> None:
        super().__init__(session, portal)
        self._session = session

    @property
    def id(self) -> str:
        """As `Session.id`."""
        return self._session.id

    def renew(self) -> None:
        """As `Session.renew`."""
        self._portal.call(self._session.renew())

    def close(self) -> None:
        """As `Session.aclose`."""
        self._portal.call(self._session.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class BlockingConsumer(BlockingReceiver):
    """A `Consumer` whose methods wait; a loop over it gives one delivery after the other."""

    def __init__(self, consumer: Consumer, portal: Portal) -> None:
        super().__init__(consumer, portal)
        self._consumer = consumer
        self._closed = threading.Event()
        self._iterations: set[AsyncGenerator[Delivery]] = set()
        self._waiting: set[asyncio.Task[Any]] = set()

    @property
    def subscription(self) -> Subscription:
        """As `Consumer.subscription`."""
        return self._consumer.subscription

    def __iter__(self) -> Iterator[Delivery]:
        """One delivery after the other, until the consumer is closed: `deliveries()`."""
        return self.deliveries()

    def deliveries(
        self, *, max_count: int = 1, idle: timedelta | None = None
    ) -> Iterator[Delivery]:
        """As `Consumer.deliveries`: one after the other, until nothing came for `idle`.

        Ends also when the consumer is closed, by another thread too. Ctrl-C stops the wait and
        goes on as KeyboardInterrupt. Left early, by `break` or an error, it abandons what was
        received and not given out, at the latest when the consumer is closed.
        """
        source = self._consumer.deliveries(max_count=max_count, idle=idle)
        self._iterations.add(source)
        try:
            while (delivery := self._portal.call(self._next(source))) is not None:
                yield delivery
        finally:
            if not self._closed.is_set():
                self._portal.call(self._end(source))

    def open(self, delivery: Delivery) -> Message:
        """As `Consumer.open`."""
        return self._portal.call(self._consumer.open(delivery))

    def read(self, delivery: Delivery) -> Any:
        """As `Consumer.read`."""
        return self._portal.call(self._consumer.read(delivery))

    def close(self) -> None:
        """End every iteration; what was received and not given out is abandoned. Idempotent, and
        safe to call from another thread. The end of the `with` block does the same, and closes
        the consumer's connection.
        """
        if not self._closed.is_set():
            self._closed.set()
            self._portal.call(self._end_all())

    async def _next(self, source: AsyncGenerator[Delivery]) -> Delivery | None:
        task = asyncio.current_task()
        assert task is not None
        if self._closed.is_set():
            return None
        self._waiting.add(task)
        try:
            return await anext(source, None)
        except asyncio.CancelledError:
            # Cancelled by `close` it is the end of the iteration, and of nothing else.
            if self._closed.is_set() and not task.uncancel():
                return None
            raise
        finally:
            self._waiting.discard(task)

    async def _end(self, source: AsyncGenerator[Delivery]) -> None:
        self._iterations.discard(source)
        await source.aclose()

    async def _end_all(self) -> None:
        waiting = list(self._waiting)
        for task in waiting:
            task.cancel()
        if waiting:
            await asyncio.wait(waiting)
        for source in list(self._iterations):
            await self._end(source)

    def extend(self, delivery: Delivery, lease: timedelta | None = None) -> None:
        """As `Consumer.extend`."""
        self._portal.call(self._consumer.extend(delivery, lease))

    @overload
    def accept_session(self, session: str, *, wait: timedelta | None = None) -> BlockingSession: ...

    @overload
    def accept_session(
        self, session: None = None, *, wait: timedelta | None = None
    ) -> BlockingSession | None: ...

    def accept_session(
        self, session: str | None = None, *, wait: timedelta | None = None
    ) -> BlockingSession | None:
        """As `Consumer.accept_session`."""
        accepted = self._portal.call(self._accepted(session, wait))
        return None if accepted is None else BlockingSession(accepted, self._portal)

    async def _accepted(self, session: str | None, wait: timedelta | None) -> Session | None:
        if session is None:
            return await self._consumer.accept_session(wait=wait)
        return await self._consumer.accept_session(session, wait=wait)


class BlockingApp:
    """An open app whose methods wait; safe to share between threads."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._portal = Portal()

    def send(self, request: object) -> Any:
        """As `CommandProcessor.send`."""
        return self._portal.call(self._app.processor.send(request))

    def publish(self, event: object) -> None:
        """As `CommandProcessor.publish`."""
        self._portal.call(self._app.processor.publish(event))

    def post(self, request: object, *, transaction: object = None, **options: Any) -> str:
        """As `App.post`; a blocking transaction is written in the thread that calls."""
        if transaction is None:
            return self._portal.call(self._app.post(request, **options))
        [id_] = self._deposit([request], transaction, options)
        return id_

    def post_all(
        self, requests: Sequence[object], *, transaction: object = None, **options: Any
    ) -> Sequence[str]:
        """As `App.post_all`; a blocking transaction is written in the thread that calls."""
        if transaction is None:
            return self._portal.call(self._app.post_all(requests, **options))
        return self._deposit(requests, transaction, options)

    def _deposit(
        self, requests: Sequence[object], transaction: object, options: Mapping[str, Any]
    ) -> Sequence[str]:
        chosen = PostOptions(**options)
        poster = self._app.poster
        writer = poster.writer(transaction)
        if not writer.is_blocking:
            remedy = "it is an asynchronous one, which belongs to another event loop; use App.post"
            raise ConfigurationError("post.transaction", type(transaction), remedy)
        posted = self._portal.call(poster.prepare(requests, chosen))
        writer.write(posted)
        return [each.id for each in posted]

    @contextmanager
    def consumer(self, subscription: Subscription) -> Iterator[BlockingConsumer]:
        """As `App.consumer`."""
        opening = self._app.consumer(subscription)
        consumer = BlockingConsumer(self._portal.call(_entered(opening)), self._portal)
        try:
            yield consumer
        finally:
            try:
                consumer.close()
            finally:
                self._portal.call(_left(opening))

    def __enter__(self) -> Self:
        self._portal.start()
        try:
            self._portal.call(self._app.__aenter__())
        except BaseException:
            self._portal.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._portal.call(self._app.__aexit__(None, None, None))
        finally:
            self._portal.stop()


class SharedBlockingApp:
    """One `BlockingApp` for all that need an app at the same time: the first opens it, the last
    one closes it.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._changing = threading.Lock()
        self._stack = ExitStack()
        self._blocking: BlockingApp | None = None
        self._user_count = 0

    @contextmanager
    def opened(self) -> Iterator[BlockingApp]:
        """The app, open at least until the block ends."""
        with self._changing:
            if self._blocking is None:
                self._blocking = self._stack.enter_context(BlockingApp(self._app))
            blocking = self._blocking
            self._user_count += 1
        try:
            yield blocking
        finally:
            with self._changing:
                self._user_count -= 1
                if not self._user_count:
                    self._blocking = None
                    self._stack.close()


async def _entered(opening: Any) -> Consumer:
    consumer: Consumer = await opening.__aenter__()
    return consumer


async def _left(opening: Any) -> None:
    await opening.__aexit__(None, None, None)

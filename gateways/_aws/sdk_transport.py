"""The transport: one way to call AWS, and what boto3 and aioboto3 have in common: nearly all."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future as ThreadFuture
from contextlib import suppress
from functools import cache, partial
from types import TracebackType
from typing import Any, Protocol

import attrs

from pump.clock import Clock
from pump.errors import ConnectionFailed, CredentialsExpired, GatewayError, PoolExhausted, PumpError
from pump.tasks import Deadlines

from .errors import fault_of, metadata_of
from .settings import AwsSettings

# The transport: one way to call AWS, whichever SDK performs the call.

Request = Mapping[str, Any]
Reply = dict[str, Any]


@attrs.define(eq=False)
class Polling:
    """A call that may wait at AWS for something to come.

    It takes only connections that others leave, and waits for its turn as long as that takes.
    From `started_at_s` on, when it has one, it is given up after `patience_s` without an answer.
    """

    patience_s: float
    started_at_s: float
    """On the transport's clock: when it was made, and then when it got its connection. The time
    in line between the two was not spent at AWS."""


class Transport(Protocol):
    """Performs operations of AWS services, many at once, on one event loop.

    A call is tried again by itself while AWS throttles, fails or cannot be reached, with
    jittered backoff and at most `AwsSettings.max_attempts` times. What it raises then is of
    `pump.errors`, names the target, and holds no secret.
    """

    async def open(self) -> None:
        """Check the SDK's version and make the session; idempotent, and without network.

        Raises `ConfigurationError` for a missing or old SDK and for an unknown profile.
        """

    async def call(
        self,
        service: str,
        operation: str,
        request: Request,
        *,
        target: str = "",
        polling: Polling | None = None,
    ) -> Reply:
        """Perform one operation, as in `call("sqs", "receive_message", {…}, target="orders")`.

        Operations have boto3's names. `target` is what an error names; without one, the
        service. `polling` is for receives. A streamed body of a reply is read to its end and is
        `bytes`. A cancelled call may still have happened.
        """

    async def aclose(self) -> None:
        """Refuse new calls, fail long polls at once and others soon, and release everything.

        Idempotent, and done even if the caller is cancelled.
        """


CLOSE_GRACE_S = 1.0
"""How long closing waits for calls that are not long polls, and then for them to unwind."""


class Sdk(Protocol):
    """One SDK; the only thing in which two transports differ. Raises the SDK's own errors."""

    async def open(self) -> None:
        """Import the SDK and make its session, off the event loop."""

    async def connect(self, service: str) -> Client:
        """Make the client of a service, without network except to find credentials."""

    async def perform(
        self, client: Client, operation: str, request: Request, held: HeldConnection
    ) -> Reply:
        """Perform one operation on the connection that is held for it."""

    async def aclose(self) -> None:
        """Close the clients; calls that still run may fail."""


class SdkTransport:
    """A `Transport` over boto3 or aioboto3."""

    def __init__(self, sdk: Sdk, settings: AwsSettings, clock: Clock) -> None:
        self._sdk = sdk
        self._clock = clock
        self._connections = Connections(
            settings.max_connections,
            long_poll_limit=settings.long_poll_limit,
            patience_s=settings.pool_timeout_s,
            clock=clock,
        )
        # Polls wait for whole seconds, so these are few.
        self._deadlines = cache(partial(Deadlines, clock))
        self._clients = Clients(self._connect)
        self._opening = asyncio.Lock()
        self._is_open = False
        self._closing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        async with self._opening:
            self._check_open("aws")
            if self._is_open:
                return
            with _Translated("aws", "open", "aws"):
                await self._sdk.open()
            self._is_open = True

    async def call(
        self,
        service: str,
        operation: str,
        request: Request,
        *,
        target: str = "",
        polling: Polling | None = None,
    ) -> Reply:
        name = target or service
        self._check_open(name)
        client = self._clients.made(service) or await self._client(service, name)
        async with self._connections.hold(name, is_long_poll=polling is not None) as held:
            if polling is None:
                with _Translated(service, operation, name):
                    return await self._sdk.perform(client, operation, request, held)
            polling.started_at_s = self._clock.now_s()
            try:
                async with self._deadlines(polling.patience_s).begin():
                    with _Translated(service, operation, name):
                        return await self._sdk.perform(client, operation, request, held)
            except TimeoutError:
                detail = f"no answer to {operation} within {polling.patience_s:g} s"
                raise ConnectionFailed(name, detail) from None

    async def aclose(self) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="pumphouse-aws-close")
        await asyncio.wait([self._closing])
        self._closing.result()

    async def _client(self, service: str, target: str) -> Client:
        try:
            with _Translated(service, "connect", target):
                return await self._clients.of(service)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            # Without a request to cancel, what was cancelled is the making of the client.
            if task is not None and not task.cancelling():
                raise closed(target) from None
            raise

    def _check_open(self, target: str) -> None:
        if self._closing is not None:
            raise closed(target)

    async def _connect(self, service: str) -> Client:
        await self.open()
        return await self._sdk.connect(service)

    async def _close(self) -> None:
        await self._clients.aclose()
        await self._connections.aclose(grace_s=CLOSE_GRACE_S)
        closing = asyncio.create_task(self._sdk.aclose(), name="pumphouse-aws-sdk-close")
        # Real sockets, so in real time even when a test's clock stands still.
        await asyncio.wait([closing], timeout=CLOSE_GRACE_S)
        if closing.done():
            closing.result()
        else:
            closing.cancel()


class _Translated:
    """Raises what an SDK raised inside as one of our errors. Passed by every call, so it is no
    generator, which would take several times as long.
    """

    __slots__ = ("_operation", "_service", "_target")

    def __init__(self, service: str, operation: str, target: str) -> None:
        self._service = service
        self._operation = operation
        self._target = target

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Whatever else: the SDKs raise their own, urllib3's and aiohttp's errors.
        if not isinstance(error, Exception) or isinstance(error, PumpError):
            return
        fault = fault_of(
            error, service=self._service, operation=self._operation, target=self._target
        )
        raise fault from (None if _is_telling(error, fault) else error)


def _is_telling(error: Exception, fault: PumpError) -> bool:
    """Whether a secret is in an error, or in what led to it."""
    # AWS explains a wrong signature with the signed text, session token and all; and aiohttp what
    # a proxy refused with the proxy's URL, password and all.
    is_of_proxy = type(error).__name__ == "ProxyConnectionError"
    return is_of_proxy or isinstance(fault, CredentialsExpired)


# Clients: one per service, made at its first use and only once.

Client = Any
"""A client of an SDK: its methods come out of service models when it is made."""


class Clients:
    """However many ask at once, a client is made once.

    One that could not be made is tried again by the next call. Cancelling one call
    leaves the making to the others.
    """

    def __init__(self, make: Callable[[str], Awaitable[Client]]) -> None:
        self._make = make
        self._made: dict[str, Client] = {}
        self._making: dict[str, asyncio.Task[Client]] = {}
        self._turn = asyncio.Lock()

    def made(self, service: str) -> Client | None:
        """The client of this service, if there is one already."""
        return self._made.get(service)

    async def of(self, service: str) -> Client:
        """The client of this service. CancelledError, too, once the clients are closed."""
        client = self._made.get(service)
        if client is not None:
            return client
        making = self._making.get(service) or self._begin(service)
        await asyncio.wait([making])
        return making.result()

    async def aclose(self) -> None:
        """Stop making clients; those that are made belong to their makers."""
        making = list(self._making.values())
        for task in making:
            task.cancel()
        if making:
            await asyncio.wait(making)

    def _begin(self, service: str) -> asyncio.Task[Client]:
        task = asyncio.create_task(self._one(service), name=f"pumphouse-aws-client-{service}")
        self._making[service] = task
        task.add_done_callback(lambda done: self._end(service, done))
        return task

    async def _one(self, service: str) -> Client:
        # An SDK's session makes one client at a time.
        async with self._turn:
            return await self._make(service)

    def _end(self, service: str, done: asyncio.Task[Client]) -> None:
        del self._making[service]
        # Asking for the exception also says that it is not forgotten when no call waited.
        if not done.cancelled() and done.exception() is None:
            self._made[service] = done.result()


# The gate in front of the connections: so many calls at once, and fewer long polls.
#
# A call holds one connection from its start to its end. When none is free it waits in line,
# other calls before long polls, and gives up after a while; a long poll does not: its turn comes
# when another one ends. Long polls may hold all but a reserve, so that an ack never waits for one.


def closed(target: str) -> ConnectionFailed:
    """What a call gets that comes, or still runs, when its gateway is closed."""
    return ConnectionFailed(target, "the gateway is closed")


class Connections:
    """Counts the calls in flight on one event loop."""

    def __init__(
        self, limit: int, *, long_poll_limit: int, patience_s: float, clock: Clock
    ) -> None:
        self._limit = limit
        self._free = limit
        self._free_for_polls = long_poll_limit
        self._patience_s = patience_s
        self._clock = clock
        self._calls: deque[_WaitingCall] = deque()
        self._polls: deque[_WaitingCall] = deque()
        self._held: set[HeldConnection] = set()
        self._idle: asyncio.Future[None] | None = None
        self._is_closed = False

    @property
    def in_use(self) -> int:
        """How many connections are in use, also by threads that no call waits for any more."""
        return self._limit - self._free

    def hold(self, target: str, *, is_long_poll: bool = False) -> HeldConnection:
        """`async with connections.hold("orders"): …` holds a connection for the body.

        Raises `PoolExhausted` when none became free in time, `ConnectionFailed` when closed.
        """
        return HeldConnection(self, target, is_long_poll)

    async def aclose(self, *, grace_s: float) -> None:
        """Fail waiting calls and long polls at once, the other calls after the grace."""
        self._is_closed = True
        for waiter in [*self._calls, *self._polls]:
            waiter.fail(closed(waiter.target))
        for held in list(self._held):
            if held.is_long_poll:
                held.abort()
        await self._until_idle(grace_s)
        for held in list(self._held):
            held.abort()
        await self._until_idle(grace_s)

    async def _until_idle(self, patience_s: float) -> None:
        if not self._held:
            return
        self._idle = asyncio.get_running_loop().create_future()
        # Closing waits for real sockets, so in real time even when a test's clock stands still.
        await asyncio.wait([self._idle], timeout=patience_s)

    # What a `HeldConnection` does.

    async def acquire(self, held: HeldConnection) -> None:
        """Take a free connection, or wait in line for one."""
        if self._is_closed:
            raise closed(held.target)
        if self._free and (not held.is_long_poll or self._free_for_polls):
            self._take(held.is_long_poll)
        else:
            await self._wait(held)
        self._held.add(held)

    def let_go(self, held: HeldConnection) -> None:
        """Count a call as over; its connection may still be busy."""
        self._held.discard(held)
        if self._idle is not None and not self._held and not self._idle.done():
            self._idle.set_result(None)

    def release(self, is_long_poll: bool) -> None:
        """Give a connection back, to the first in line if a call waits."""
        self._free += 1
        self._free_for_polls += is_long_poll
        self._serve()

    def _take(self, is_long_poll: bool) -> None:
        self._free -= 1
        self._free_for_polls -= is_long_poll

    def _serve(self) -> None:
        while self._free and self._calls:
            self._hand_over(self._calls.popleft())
        while self._free and self._free_for_polls and self._polls:
            self._hand_over(self._polls.popleft())

    def _hand_over(self, waiter: _WaitingCall) -> None:
        if waiter.turn.done():
            return
        self._take(waiter.is_long_poll)
        waiter.turn.set_result(None)

    async def _wait(self, held: HeldConnection) -> None:
        line = self._polls if held.is_long_poll else self._calls
        waiter = _WaitingCall(held.target, held.is_long_poll)
        line.append(waiter)
        timer = None
        if not held.is_long_poll:
            exhausted = partial(waiter.fail, PoolExhausted(held.target, self._limit))
            timer = self._clock.call_later(self._patience_s, exhausted)
        try:
            await waiter.turn
        except asyncio.CancelledError:
            if waiter.was_served():
                self.release(held.is_long_poll)
            raise
        finally:
            if timer is not None:
                timer.cancel()
            with suppress(ValueError):
                line.remove(waiter)
        # Its turn may have come just before the end, which passes over calls that hold nothing yet.
        if self._is_closed:
            self.release(held.is_long_poll)
            raise closed(held.target)


class _WaitingCall:
    """One call in line."""

    def __init__(self, target: str, is_long_poll: bool) -> None:
        self.target = target
        self.is_long_poll = is_long_poll
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(self, error: GatewayError) -> None:
        if not self.turn.done():
            self.turn.set_exception(error)

    def was_served(self) -> bool:
        turn = self.turn
        return turn.done() and not turn.cancelled() and turn.exception() is None


class HeldConnection:
    """One connection in use; leaving the block gives it back."""

    def __init__(self, connections: Connections, target: str, is_long_poll: bool) -> None:
        self.target = target
        self.is_long_poll = is_long_poll
        self._connections = connections
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0
        self._is_aborted = False
        self._is_kept = False

    async def __aenter__(self) -> HeldConnection:
        await self._connections.acquire(self)
        self._task = asyncio.current_task()
        self._cancelling = self._task.cancelling() if self._task else 0
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connections.let_go(self)
        if not self._is_kept:
            self._connections.release(self.is_long_poll)
        if not self._is_aborted or self._task is None:
            return
        # A cancellation that came from outside as well must win over our own.
        ours_only = self._task.uncancel() <= self._cancelling
        if ours_only and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise closed(self.target) from None

    def keep_until(self, work: ThreadFuture[Any]) -> None:
        """Hold the connection until a thread is done with it, though no call waits for it."""
        self._is_kept = True
        loop = asyncio.get_running_loop()

        def give_back(_: object) -> None:
            # A loop that has ended counts no connections.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._connections.release, self.is_long_poll)

        work.add_done_callback(give_back)

    def abort(self) -> None:
        """Make the call fail as closed, wherever it waits."""
        if not self._is_aborted and self._task is not None:
            self._is_aborted = True
            self._task.cancel()


# Counting: a transport that says how often each operation of a service was asked for.


class CountingTransport:
    """Another transport; `counts` are requests to one service by operation, with the SDK's own
    repetitions. One that was never answered counts once.
    """

    def __init__(self, transport: Transport, service: str) -> None:
        self._transport = transport
        self._service = service
        self.counts: Counter[str] = Counter()

    async def open(self) -> None:
        await self._transport.open()

    async def call(
        self,
        service: str,
        operation: str,
        request: Request,
        *,
        target: str = "",
        polling: Polling | None = None,
    ) -> Reply:
        call = self._transport.call
        if service != self._service:
            return await call(service, operation, request, target=target, polling=polling)
        self.counts[operation] += 1
        try:
            reply = await call(service, operation, request, target=target, polling=polling)
        except PumpError as fault:
            self._note(operation, metadata_of(fault))
            raise
        self._note(operation, reply.get("ResponseMetadata") or {})
        return reply

    async def aclose(self) -> None:
        await self._transport.aclose()

    def _note(self, operation: str, metadata: Mapping[str, Any]) -> None:
        repeated = int(metadata.get("RetryAttempts") or 0)
        if repeated:
            self.counts[operation] += repeated

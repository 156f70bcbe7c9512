"""The connections of one gateway: for each queue one that receives, one that is asked, one that
sends. Each is made at its first use; opening one takes the SDK half a second.

What was received is not settled through the link it came by, but by its lock, on the connection
that is asked: so a settlement never waits for a receive, and a lock outlives its connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from pump.backoff import RECONNECT
from pump.clock import Clock
from pump.errors import ConnectionFailed, PumpError, Throttled
from pump.observability import vocabulary
from pump.observability.log import get_logger
from pump.tasks import BackgroundTasks, in_thread
from pump.versions import Packages

from .errors import ServiceBusTarget, fault_of
from .names import MAX_TRIES
from .settings import ServiceBusSettings

if TYPE_CHECKING:
    from .sdk import Administration, Client, Receiver, Sender


# A handle on one sender or receiver of the SDK: made when needed, thrown away when it failed.
#
# The SDK's objects are for one caller at a time, and none may be cancelled in the middle: a frame
# that is read by half is lost. So each call runs as a task of its own, one after the other.
#
# | the handle is | when                                      | and then                           |
# |---------------|-------------------------------------------|------------------------------------|
# | empty         | never used, or its object was thrown away | the next call makes an object      |
# | in use        | a call is under way                       | other calls wait                   |
# | ready         | the last call was answered                | the next call uses the same object |
# | stale         | not used for a minute                     | the next call makes another        |
# | closed        | the gateway was closed                    | every call fails                   |

CLOSING_S = 5.0
STALE_S = 60.0
"""The service closes what is idle for some minutes, and only the next call would find out."""
_log = get_logger("gateways.servicebus")
T = TypeVar("T")


class Closable(Protocol):
    """What the SDK's senders and receivers have in common."""

    async def close(self) -> None:
        """Release the connection."""


S = TypeVar("S", bound=Closable)


class Handle(Generic[S]):
    """Calls to one object of the SDK. Safe for many tasks at once."""

    def __init__(
        self,
        make: Callable[[], S],
        chores: BackgroundTasks,
        *,
        clock: Clock,
        timeout_s: float,
        stale_s: float | None = STALE_S,
    ) -> None:
        self._make = make
        self._chores = chores
        self._clock = clock
        self._timeout_s = timeout_s
        self._stale_s = stale_s
        self._used_at_s = 0.0
        self._turn = asyncio.Lock()
        self._object: S | None = None
        self._is_closed = False

    async def call(
        self, where: ServiceBusTarget, work: Callable[[S], Awaitable[T]], *, more_s: float = 0.0
    ) -> T:
        """What `work` returns, as our errors where it fails. Goes on in peace when cancelled.

        A request that the service is too busy for was not applied, and is made again.
        """
        return await asyncio.shield(
            self._chores.start(self._patiently(where, work, more_s), where.operation)
        )

    async def replace(self) -> None:
        """After the call under way, drop the object: the next call makes another."""
        async with self._turn:
            self._throw_away()

    async def aclose(self) -> None:
        """Wait for the call under way, and close."""
        self._is_closed = True
        async with self._turn:
            old, self._object = self._object, None
            if old is not None:
                await close(old, self._clock)

    async def _patiently(
        self, where: ServiceBusTarget, work: Callable[[S], Awaitable[T]], more_s: float
    ) -> T:
        async with self._turn:
            for attempt in range(1, MAX_TRIES):
                try:
                    return await self._once(where, work, more_s)
                except Throttled:
                    await self._clock.sleep(RECONNECT.delay_s(attempt, self._clock.chance()))
            return await self._once(where, work, more_s)

    async def _once(
        self, where: ServiceBusTarget, work: Callable[[S], Awaitable[T]], more_s: float
    ) -> T:
        if self._is_closed:
            raise ConnectionFailed(where.address, "the gateway is closed")
        if self._stale_s is not None and self._clock.now_s() - self._used_at_s > self._stale_s:
            self._throw_away()
        if self._object is None:
            self._object = self._make()
        try:
            async with self._clock.timeout(self._timeout_s + more_s):
                return await work(self._object)
        except Exception as error:  # broad: whatever the SDK raises is sorted
            fault = _timed_out(error, where, self._timeout_s + more_s) or fault_of(error, where)
            if not isinstance(fault, Throttled):
                self._throw_away()
            raise fault from error
        except BaseException:
            self._throw_away()
            raise
        finally:
            self._used_at_s = self._clock.now_s()

    def _throw_away(self) -> None:
        """Whatever state it is in, the next call has a new one."""
        old, self._object = self._object, None
        if old is not None:
            self._chores.start(close(old, self._clock), "close")


def _timed_out(error: Exception, where: ServiceBusTarget, timeout_s: float) -> PumpError | None:
    if isinstance(error, TimeoutError):
        return ConnectionFailed(where.address, f"no answer within {timeout_s:g} s")
    return None


async def close(old: Closable, clock: Clock) -> None:
    """Close an object of the SDK, however it is, in a bounded time."""
    try:
        async with clock.timeout(CLOSING_S):
            await old.close()
    except Exception as error:  # broad: whatever is wrong with it, it is to go
        _log.debug(vocabulary.SETTLE_FAILED, error=repr(error))


class ServiceBusConnections:
    """All handles of a gateway."""

    def __init__(self, settings: ServiceBusSettings, clock: Clock) -> None:
        self.settings = settings
        self.clock = clock
        self.chores = BackgroundTasks("servicebus")
        self._credential: Any = None
        self._client: Client | None = None
        self._administration: Administration | None = None
        self._handles: dict[tuple[str, str], Handle[Any]] = {}
        self._is_closed = True
        self._opening = asyncio.Lock()

    @property
    def address(self) -> str:
        """Where the namespace is, without a secret."""
        return self.settings.address

    async def open(self) -> None:
        """Check the SDK, and that it listens; who we are is found out by the first call."""
        async with self._opening:
            if not self._is_closed:
                return
            packages = [name for name in PACKAGES.versions if self._needs(name)]
            await in_thread(PACKAGES.check_installed, packages)
            await self._knock()
            # The SDK reads files and asks the machine who it is.
            await in_thread(self._make)
            self._is_closed = False

    async def aclose(self) -> None:
        """Close everything. Idempotent."""
        self._is_closed = True
        handles = list(self._handles.values())
        self._handles.clear()
        try:
            async with self.clock.timeout(CLOSING_S):
                await asyncio.gather(*(handle.aclose() for handle in handles))
                await self.chores.finish()
        except TimeoutError:
            await self.chores.abort()
        finally:
            await self._let_go()

    def sender(self, queue: str) -> Handle[Sender]:
        """What sends to a queue."""
        from . import sdk

        read_s = self.settings.read_s
        return self._handle(
            ("send", queue), lambda: sdk.sender_of(self.client, queue, read_s=read_s)
        )

    def receiver(self, queue: str) -> Handle[Receiver]:
        """What receives from a queue."""
        return self._handle(("receive", queue), lambda: self.new_receiver(queue))

    def lock_receiver(self, queue: str) -> Handle[Receiver]:
        """What is asked about a queue: to settle, renew, and look."""
        return self._handle(("ask", queue), lambda: self.new_receiver(queue))

    def new_receiver(self, queue: str) -> Receiver:
        """A receiver of the caller's own; connects nothing."""
        from . import sdk

        return sdk.receiver_of(self.client, queue, read_s=self.settings.read_s)

    @property
    def client(self) -> Client:
        """What makes senders and receivers."""
        if self._client is None:
            raise ConnectionFailed(self.address, "the gateway is closed")
        return self._client

    @property
    def administration(self) -> Administration:
        """What makes and describes queues."""
        if self._administration is None:
            raise ConnectionFailed(self.address, "the gateway is closed")
        return self._administration

    def own(self, make: Callable[[], Any], *, stale_s: float | None = STALE_S) -> Handle[Any]:
        """A handle that is its caller's to close."""
        return Handle(
            make,
            self.chores,
            clock=self.clock,
            timeout_s=self.settings.request_timeout_s,
            stale_s=stale_s,
        )

    def _handle(self, key: tuple[str, str], make: Callable[[], Any]) -> Handle[Any]:
        if self._is_closed:
            raise ConnectionFailed(self.address, "the gateway is closed")
        if key not in self._handles:
            self._handles[key] = self.own(make)
        return self._handles[key]

    def _needs(self, package: str) -> bool:
        return package != "azure-identity" or self.settings.key is None

    def _make(self) -> None:
        from . import sdk

        sdk.hush()
        self._credential = sdk.credential_of(self.settings)
        self._client = sdk.client_of(self.settings, self._credential)
        self._administration = sdk.administration_of(self.settings, self._credential)

    async def _knock(self) -> None:
        settings = self.settings
        try:
            async with self.clock.timeout(settings.request_timeout_s):
                _, writer = await asyncio.open_connection(settings.namespace, settings.amqp_port)
        except (OSError, TimeoutError) as error:
            detail = str(error) or f"no answer within {settings.request_timeout_s:g} s"
            raise ConnectionFailed(self.address, detail) from error
        writer.close()

    async def _let_go(self) -> None:
        client, self._client = self._client, None
        administration, self._administration = self._administration, None
        credential, self._credential = self._credential, None
        for each in (client, administration, credential):
            if each is not None:
                await close(each, self.clock)


# The SDK this works with, checked before anything is sent (R77).

PACKAGES = Packages(
    extra="servicebus",
    versions={
        # Parts of it are used that it does not promise to keep (see `sdk`).
        "azure-servicebus": ">=7.15,<8",
        "azure-identity": ">=1.16",
        "aiohttp": ">=3.14",
    },
)

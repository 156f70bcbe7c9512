"""The client: the engine of another process, with the engine's own methods."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import TypeVar

import attrs
import msgspec

from pump.clock import Clock
from pump.errors import ConfigurationError, ConnectionFailed, PumpError
from pump.message import Delivery, Message
from pump.outcome import Action
from pump.ports import QueueStats
from pump.subscription import MakeChannels, QueueSpec

from .._engine.ports import Grant
from .._engine.record import EngineSettings, is_bare
from . import codec, wire
from .dispatcher import RequestDispatcher

T = TypeVar("T")


@attrs.define(eq=False)
class _Call:
    request: wire.Request
    answer: asyncio.Future[bytes]


class LocalClient:
    """Requests in flight survive their host: they are asked again of the next one.

    Cancelling a receive or an accept takes back what it leased or locked. Cancelling anything else
    only stops the waiting, as with an engine in this process.
    """

    def __init__(self, owner: str, clock: Clock, on_lost: Callable[[], object]) -> None:
        self._owner = owner
        self.clock = clock
        self._on_lost = on_lost
        self._numbers = count(1)
        self._calls: dict[int, _Call] = {}
        self._writer: StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._dispatcher: RequestDispatcher | None = None
        self._target = ""
        self._host_ahead_s: float | None = 0.0
        """How far the host's clock is ahead of ours; None when it does not say."""

    async def connect(self, address: Path) -> bool:
        """Greet the host that listens there and ask again what is unanswered; False if none."""
        try:
            reader, writer = await asyncio.open_unix_connection(address)
        except PermissionError as error:
            raise ConnectionFailed(
                str(address), f"{error}; run as the user who hosts the queues"
            ) from error
        except OSError:
            return False
        self._target = str(address)
        greeted_at_s = self.clock.now_s()
        wire.write(writer, wire.Hello(self._owner, wire.PROTOCOL))
        try:
            welcome = wire.decode_answer(await wire.read_frame(reader))
        except (asyncio.IncompleteReadError, OSError):
            writer.close()
            return False
        except wire.UNREADABLE as error:
            writer.close()
            raise self._unreadable(error) from error
        except BaseException:
            writer.close()
            raise
        if isinstance(welcome, wire.RemoteFailure):
            writer.close()
            raise wire.unpack_failure(welcome, self._target)
        self._host_ahead_s = self._compare_clocks(welcome.result, greeted_at_s)
        self._writer = writer
        for call in list(self._calls.values()):
            self._write(writer, _again(call.request))
        self._reading = asyncio.create_task(self._read(reader, writer), name="pumphouse-client")
        return True

    def hand_over(self, dispatcher: RequestDispatcher) -> None:
        """Ask from now on in this process, which has become the host."""
        self._dispatcher = dispatcher
        self._host_ahead_s = 0.0
        for call in self._calls.values():
            dispatcher.submit(self._owner, _again(call.request), self._on_answer)

    def fail(self, error: PumpError) -> None:
        """Give up on everything unanswered."""
        calls, self._calls = self._calls, {}
        for call in calls.values():
            _fail(call.answer, error)

    async def aclose(self) -> None:
        """Tell the host that this client leaves, if it is connected to one."""
        if self._writer is not None:
            bye = self._begin(wire.Bye(next(self._numbers)))
            await asyncio.wait([bye], timeout=1.0)
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
            self._writer = None
        for call in self._calls.values():
            if isinstance(call.request, wire.Waiting) and not call.answer.done():
                call.answer.set_result(wire.encode(_empty_answer(call.request)))
        self.fail(ConnectionFailed(self._target, "the gateway was closed"))

    # What an engine does.

    async def send(
        self, queue: str, messages: Sequence[Message], *, delay_s: float = 0.0
    ) -> list[str]:
        packed = [codec.pack(message) for message in messages]
        number, below = self.next_number()
        await self.call(wire.SendRequest(number, below, queue, packed, delay_s))
        return [message.id for message in messages]

    async def receive(
        self, queue: str, *, max_count: int, wait_s: float, lease_s: float
    ) -> list[Delivery]:
        number, _ = self.next_number()
        request = wire.Receive(number, queue, max_count, wait_s, lease_s)
        return self.read_deliveries(queue, await self.call(request))

    async def settle(
        self, queue: str, receipts: Sequence[str], actions: Sequence[Action]
    ) -> list[int]:
        number, below = self.next_number()
        packed = wire.pack_actions(actions)
        asked_at_s = self.host_s(self.clock.now_s())
        request = wire.SettleRequest(number, below, queue, list(receipts), packed, asked_at_s)
        result = await self.call(request)
        return self.read_as(codec.unpack_positions, result)

    async def extend(self, queue: str, receipts: Sequence[str], *, lease_s: float) -> list[int]:
        number, _ = self.next_number()
        asked_at_s = self.host_s(self.clock.now_s())
        request = wire.ExtendRequest(number, queue, list(receipts), lease_s, asked_at_s)
        result = await self.call(request)
        return self.read_as(codec.unpack_positions, result)

    async def ensure(self, spec: QueueSpec, make: MakeChannels) -> None:
        settings = codec.pack_settings(EngineSettings.from_spec(spec))
        number, _ = self.next_number()
        await self.call(wire.Declare(number, settings, make, is_bare(spec)))

    async def queues(self) -> list[QueueStats]:
        counts = self.read_as(
            wire.decode_counts, await self.call(wire.Stats(self.next_number()[0]))
        )
        return [
            QueueStats(
                name=each.name,
                visible=each.visible,
                in_flight=each.in_flight,
                delayed=each.delayed,
                oldest_age_s=each.oldest_age_s,
            )
            for each in counts
        ]

    async def peek(self, queue: str, *, max_count: int) -> list[Message]:
        result = await self.call(wire.Peek(self.next_number()[0], queue, max_count))
        return [codec.unpack(packed) for packed in self.read_as(wire.decode_packed, result)]

    async def purge(self, queue: str) -> int:
        result = await self.call(wire.PurgeRequest(self.next_number()[0], queue))
        return self.read_as(wire.decode_number, result)

    # Asking.

    def next_number(self) -> tuple[int, int]:
        """A request's own number, and the one below which all have been answered."""
        number = next(self._numbers)
        return number, next(iter(self._calls), number)

    async def call(self, request: wire.Request) -> bytes:
        """Ask, and return the packed result."""
        answer = self._begin(request)
        try:
            return await answer
        except asyncio.CancelledError:
            if isinstance(request, wire.Waiting):
                self._calls.pop(request.number, None)
                self._begin(wire.Cancel(next(self._numbers), request.number))
            raise

    def _begin(self, request: wire.Request) -> asyncio.Future[bytes]:
        call = _Call(request, asyncio.get_running_loop().create_future())
        self._calls[request.number] = call
        if self._dispatcher is not None:
            self._dispatcher.submit(self._owner, request, self._on_answer)
        elif self._writer is not None:
            self._write(self._writer, request)
        return call.answer

    def _write(self, writer: StreamWriter, request: wire.Request) -> None:
        """Send a request, or answer one that no connection can carry: it must not be asked again
        of every host to come.
        """
        try:
            wire.write(writer, request)
        except UnicodeEncodeError as error:
            remedy = "half a surrogate pair is no character; use text that UTF-8 has"
            call = self._calls.pop(request.number)
            _fail(call.answer, ConfigurationError("name", error.object, remedy))

    async def _read(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            while True:
                self._on_answer(wire.decode_answer(await wire.read_frame(reader)))
        except (asyncio.IncompleteReadError, OSError):
            self._writer = None
            self._on_lost()
        except wire.UNREADABLE as error:
            # Not asked again: the answers would be the same, and the callers must have them.
            self._writer = None
            self.fail(self._unreadable(error))
            self._on_lost()
        finally:
            writer.close()

    def read_deliveries(self, queue: str, result: bytes) -> list[Delivery]:
        """What a receive returned."""
        handed = self.read_as(wire.decode_handed, result)
        return [
            Delivery(
                message=codec.unpack(each.packed),
                queue=queue,
                receipt=each.receipt,
                attempt=each.attempt,
                lease_expires_at_s=self.ends_at_s(each.expires_at_s, each.left_s),
                broker_id=each.broker_id,
            )
            for each in handed
        ]

    def ends_at_s(self, expires_at_s: float | None, left_s: float) -> float:
        """When a lease ends by our clock, however long its answer lay unread."""
        if expires_at_s is None or self._host_ahead_s is None:
            return self.clock.now_s() + left_s
        return expires_at_s - self._host_ahead_s

    def host_s(self, now_s: float) -> float | None:
        """A time of ours by the host's clock."""
        return None if self._host_ahead_s is None else now_s + self._host_ahead_s

    def _compare_clocks(self, welcome: bytes, greeted_at_s: float) -> float | None:
        """One machine has one monotonic clock, unless a container was given a time of its own:
        then leases end early by what the greeting took.
        """
        if not welcome:
            return None
        host_s = self.read_as(wire.decode_seconds, welcome)
        is_ours = greeted_at_s <= host_s <= self.clock.now_s()
        return 0.0 if is_ours else host_s - greeted_at_s

    def read_as(self, decode: Callable[[bytes], T], result: bytes) -> T:
        """A result as what it is; `ConnectionFailed` when the host's release is another."""
        try:
            return decode(result)
        except wire.UNREADABLE as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> ConnectionFailed:
        return ConnectionFailed(
            self._target, f"its host's answer cannot be read ({error}); use one release everywhere"
        )

    def _on_answer(self, answer: wire.Answer) -> None:
        call = self._calls.pop(answer.number, None)
        if call is None or call.answer.done():
            return
        if isinstance(answer, wire.PackedReply):
            call.answer.set_result(answer.result)
        else:
            _fail(call.answer, wire.unpack_failure(answer, self._target))


def _again(request: wire.Request) -> wire.Request:
    if isinstance(request, wire.Waiting):
        return msgspec.structs.replace(request, is_repeat=True)
    return request


def _empty_answer(request: wire.Waiting) -> list[object] | None:
    return None if isinstance(request, wire.AcceptSession) else []


def _fail(answer: asyncio.Future[bytes], error: PumpError) -> None:
    if not answer.done():
        answer.set_exception(error)
        # No caller awaits a cancel's answer: do not log its failure as never retrieved.
        answer.exception()


# Sessions on the engine of another process.


class ClientSessions:
    """Asks the host. Its token makes a session the same one for the next host."""

    def __init__(self, client: LocalClient) -> None:
        self._client = client

    async def accept(
        self, queue: str, session: str | None, *, wait_s: float, lease_s: float
    ) -> Grant | None:
        number, _ = self._client.next_number()
        request = wire.AcceptSession(number, queue, session, wait_s, lease_s)
        granted = self._client.read_as(wire.decode_granted, await self._client.call(request))
        if granted is None:
            return None
        expires_at_s = self._client.ends_at_s(granted.expires_at_s, granted.left_s)
        return Grant(granted.session, granted.token, expires_at_s)

    async def receive(
        self, queue: str, grant: Grant, *, max_count: int, wait_s: float
    ) -> list[Delivery]:
        number, _ = self._client.next_number()
        request = wire.ReceiveInSession(
            number, queue, grant.session, grant.token, max_count, wait_s
        )
        return self._client.read_deliveries(queue, await self._client.call(request))

    async def renew(self, queue: str, grant: Grant, *, lease_s: float) -> float:
        number, _ = self._client.next_number()
        asked_at_s = self._client.clock.now_s()
        request = wire.RenewSession(
            number, queue, grant.session, grant.token, lease_s, self._client.host_s(asked_at_s)
        )
        self._client.read_as(wire.decode_seconds, await self._client.call(request))
        return asked_at_s + lease_s

    async def release(self, queue: str, grant: Grant) -> None:
        number, _ = self._client.next_number()
        await self._client.call(wire.ReleaseSession(number, queue, grant.session, grant.token))

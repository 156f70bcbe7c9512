"""A link: one connection to a server, from its beginning to its end.

Answers find their question by the last token of a reply subject of the link's own. Pulls cannot:
the server delivers a message under the subject it was published on, so each pull that is under
way has a subscription to itself (`PullInbox`). One that ended is used again; one that was given up
is dropped, upon which the server forgets the pull, and what was already on its way is handed
back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs

from pump.clock import Clock
from pump.errors import AccessDenied, ConnectionFailed, GatewayError
from pump.message import new_id
from pump.tasks import BackgroundTasks

from .errors import violation_of

CLOSE_PATIENCE_S = 1.0


async def close(client: Any, clock: Clock) -> None:
    """Close a client, connected or not; what takes too long is cut off."""
    try:
        async with clock.timeout(CLOSE_PATIENCE_S):
            await client.close()
    except Exception:  # broad: it failed half-way, or was never connected
        client.abort()


class Link:
    """One connection. Once it is lost, everything that waits on it fails, and it stays lost."""

    def __init__(self, target: str, clock: Clock) -> None:
        self._target = target
        self._clock = clock
        self._client: Any = None
        self._prefix = f"_INBOX.{new_id()}"
        self._count = 0
        self._waiting: dict[str, tuple[str, asyncio.Future[Incoming]]] = {}
        self._idle: list[PullInbox] = []
        self._pulling: dict[asyncio.Future[None], str] = {}
        self._chores = BackgroundTasks("nats")
        self._last_error: BaseException | None = None
        self._is_lost = False
        self.alive_until_s = 0.0
        """When a link that is lost showed its last sign of life."""

    @property
    def is_alive(self) -> bool:
        """Whether it can be used, as far as we know."""
        return not self._is_lost and self._client is not None and self._client.is_connected

    @property
    def max_payload(self) -> int:
        """The most that one message may weigh, headers and body, as the server says."""
        return int(self._client.max_payload)

    @property
    def server_id(self) -> str:
        """Which server it leads to; another one after a restart."""
        return str(self._client.server_info.get("server_id", ""))

    @property
    def has_jetstream(self) -> bool:
        """Whether the server said so; it may know one elsewhere."""
        return bool(self._client.server_info.get("jetstream"))

    @property
    def last_error(self) -> BaseException | None:
        """What the SDK reported last."""
        return self._last_error

    async def begin(self, client: Any) -> None:
        """Use a client that is connected."""
        self._client = client
        await client.hear(f"{self._prefix}.*", self._answered)

    async def request_all(
        self, requests: Sequence[ServerRequest], *, timeout_s: float
    ) -> list[Answer]:
        """Send all, and return what came of each, in order. Never raises for one of them."""
        asked: list[tuple[str, asyncio.Future[Incoming]]] = []
        try:
            try:
                for request in requests:
                    asked.append(await self._ask(request))
            except ConnectionFailed as error:
                return [error for _ in requests]
            async with self._listening(timeout_s):
                await asyncio.wait([future for _, future in asked])
            return [self._outcome(future) for _, future in asked]
        finally:
            for token, future in asked:
                self._waiting.pop(token, None)
                if future.done() and not future.cancelled():
                    future.exception()

    async def publish(self, subject: str, payload: bytes, *, reply: str = "") -> None:
        """Send without waiting for anything."""
        await self._send(subject, payload, reply, None)

    async def open_inbox(self) -> PullInbox:
        """An inbox for a pull; hand it to `close_inbox` or `drop_inbox` afterwards."""
        if self._idle:
            return self._idle.pop()
        inbox = PullInbox()
        self._require()
        inbox.subscription = await self._client.hear(inbox.subjects, inbox.deliver)
        return inbox

    def close_inbox(self, inbox: PullInbox) -> None:
        """The pull has ended: the server sends no more on it."""
        self._idle.append(inbox)

    def drop_inbox(self, inbox: PullInbox, late: Callable[[Incoming], None]) -> None:
        """The pull was given up: have it forgotten; what is still on its way goes to `late`."""
        inbox.begin(late)
        if self.is_alive:
            self._start(self._client.fall_silent(inbox.subscription))

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done that nothing waits for but the closing of this link."""
        if self.is_alive:
            self._start(work)
        else:
            work.close()

    async def listen(self, subjects: Sequence[str], heard: Callable[[], None]) -> list[Any]:
        """Be told whenever something is published there; hand the result to `unlisten`."""
        self._require()
        return [await self._client.hear(subject, lambda _: heard()) for subject in subjects]

    def unlisten(self, listening: Sequence[Any]) -> None:
        """Be told no more."""
        if self.is_alive:
            for subscription in listening:
                self._start(self._client.fall_silent(subscription))

    async def until(self, done: asyncio.Future[None], subject: str, *, timeout_s: float) -> None:
        """Wait for a pull on a subject to end; `ConnectionFailed` when it does not, or the link
        is lost.
        """
        self._require()
        self._pulling[done] = subject
        try:
            async with self._listening(timeout_s):
                await done
        finally:
            del self._pulling[done]
        # A wait that times out cancels what it waits for.
        if done.cancelled():
            raise ConnectionFailed(self._target, "a receive was not answered in time")

    async def aclose(self) -> None:
        """Let what was given up be handed back, then close."""
        try:
            async with self._clock.timeout(CLOSE_PATIENCE_S):
                while self._chores and self.is_alive:
                    await self._chores.finish_current()
        except TimeoutError:
            pass
        finally:
            await self.end()

    async def end(self) -> None:
        """Close at once."""
        self.lose()
        await self._chores.abort()
        if self._client is not None:
            await close(self._client, self._clock)

    async def noticed(self, error: BaseException) -> None:
        """Called by the SDK for whatever goes wrong."""
        self._last_error = error
        violation = violation_of(error)
        if violation is None:
            return
        operation, subject = violation
        under_way: list[tuple[str, asyncio.Future[Any]]] = list(self._waiting.values())
        under_way += [(asked, done) for done, asked in self._pulling.items()]
        for asked, future in under_way:
            if not future.done() and (operation == "subscription" or asked.lower() == subject):
                future.set_exception(AccessDenied(f"{self._target} ({subject})", operation))

    async def closed(self) -> None:
        """Called by the SDK when the connection is gone."""
        self.lose()

    def lose(self, *, silent_for_s: float = 0.0) -> None:
        """Nothing more comes over this link."""
        if not self._is_lost:
            self.alive_until_s = self._clock.now_s() - silent_for_s
        self._is_lost = True
        for _, answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(self._lost())
        for done in self._pulling:
            if not done.done():
                done.set_exception(self._lost())

    @asynccontextmanager
    async def _listening(self, timeout_s: float) -> AsyncIterator[None]:
        """A wait of so long at most. A link on which nothing was heard all the while is lost:
        the SDK would take half a minute to find out.
        """
        heard_count = self._client.heard_count
        try:
            async with self._clock.timeout(timeout_s):
                yield
        except TimeoutError:
            if self._client.heard_count == heard_count:
                self._last_error = TimeoutError("the server fell silent")
                self.lose(silent_for_s=timeout_s)

    async def _ask(self, request: ServerRequest) -> tuple[str, asyncio.Future[Incoming]]:
        self._count += 1
        token = format(self._count, "x")
        future: asyncio.Future[Incoming] = asyncio.get_running_loop().create_future()
        self._waiting[token] = (request.subject, future)
        try:
            await self._send(
                request.subject, request.payload, f"{self._prefix}.{token}", request.headers
            )
        except BaseException:
            del self._waiting[token]
            raise
        return token, future

    async def _send(
        self, subject: str, payload: bytes, reply: str, headers: dict[str, str] | None
    ) -> None:
        self._require()
        try:
            await self._client.publish(subject, payload, reply=reply, headers=headers)
        except ConnectionFailed:
            raise
        except Exception as error:  # broad: the SDK names its refusals in many ways
            raise ConnectionFailed(self._target, f"{type(error).__name__}: {error}") from error

    def _answered(self, message: Incoming) -> None:
        token = message.subject.rpartition(".")[2]
        waiting = self._waiting.get(token)
        if waiting is not None and not waiting[1].done():
            waiting[1].set_result(message)

    def _outcome(self, future: asyncio.Future[Incoming]) -> Answer:
        if not future.done():
            return ConnectionFailed(self._target, "no answer in time")
        error = future.exception()
        if isinstance(error, GatewayError):
            return error
        if error is not None:
            raise error
        message = future.result()
        return NoResponders() if status_of(message) == "503" else message

    def _start(self, work: Any) -> None:
        self._chores.start(self._quietly(work), "chore")

    async def _quietly(self, work: Any) -> None:
        try:
            await work
        except Exception as error:  # broad: the lease ends by itself, whatever went wrong
            self._last_error = error

    def _require(self) -> None:
        if not self.is_alive:
            raise self._lost()

    def _lost(self) -> ConnectionFailed:
        detail = "the connection was lost"
        if self._last_error is not None and str(self._last_error):
            detail = f"{detail} ({self._last_error})"
        return ConnectionFailed(self._target, detail)


# Inboxes: where the answers to pulls arrive.


class PullInbox:
    """A subscription that answers one pull at a time.

    Each pull has a reply subject of its own, which only the server's statuses come under: one
    that is late does not end the pull after.
    """

    def __init__(self) -> None:
        self.subscription: Any = None
        self._base = f"_INBOX.{new_id()}"
        self._count = 0
        self._receiver: Callable[[Incoming], None] | None = None

    @property
    def subjects(self) -> str:
        """Everything that is sent to it."""
        return f"{self._base}.*"

    def begin(self, receiver: Callable[[Incoming], None]) -> str:
        """Have all answers given to `receiver` from now on; returns where they are to be sent."""
        self._count += 1
        self._receiver = receiver
        return f"{self._base}.{self._count}"

    def deliver(self, message: Incoming) -> None:
        """Called by the client, in the order of arrival."""
        if self._receiver is None:
            return
        is_late = status_of(message) and not message.subject.endswith(f".{self._count}")
        if not is_late:
            self._receiver(message)


# Incoming: what comes over a connection, parsed without ever failing. Pure.

STATUS: Final = "Status"
DESCRIPTION: Final = "Description"
_VERSION: Final = len(b"NATS/1.0")


@attrs.define(eq=False)
class Incoming:
    """A message, as it was read from a connection."""

    subject: str
    reply: str
    data: bytes = attrs.field(repr=False)
    headers: dict[str, str] | None = attrs.field(default=None, repr=False)


def headers_of(raw: bytes) -> dict[str, str]:
    """The headers in a block of them, whatever else is in it.

    A block begins with a version, which a code and a text may follow: where the server itself
    wrote it, they are its status.
    """
    headers: dict[str, str] = {}
    first, *lines = raw.decode("utf-8", "replace").split("\r\n")
    code, _, text = first[_VERSION:].strip().partition(" ")
    if code:
        headers[STATUS], headers[DESCRIPTION] = code, text.strip()
    for line in lines:
        name, colon, value = line.partition(":")
        if colon and (name := name.strip()):
            headers[name] = value.strip()
    return headers


def status_of(message: Incoming) -> str:
    """The code of a message that the server itself wrote; empty for all others.

    Whatever a stream delivers has a subject to be acknowledged on.
    """
    if message.data or message.reply or not message.headers:
        return ""
    return message.headers.get(STATUS, "")


# Requests, and what came of them.


@attrs.frozen(kw_only=True)
class ServerRequest:
    """One thing to ask the server for."""

    subject: str
    payload: bytes = attrs.field(default=b"", repr=False)
    headers: dict[str, str] | None = attrs.field(default=None, repr=False)


class NoResponders(Exception):
    """Nothing listens where this was sent: there is no such stream, consumer or API."""


Answer = Incoming | NoResponders | GatewayError
"""What came of a request. A refusal inside an answer is for its reader to find."""

"""One request and its answer: read, verified, understood, handed on, and put into words again."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

import attrs
import msgspec
from aiohttp import web

from pump.clock import Clock
from pump.errors import StorageFailed
from pump.observability import vocabulary
from pump.observability.log import get_logger

from ..errors import SqsError, internal_failure, service_unavailable
from ..protocol import Answer, Call, parse, render, render_error
from .connection import Connection, Reply
from .limits import HttpLimits
from .ordinary import OrdinaryRequest
from .origin import refusal_of, refusal_of_change
from .plain_response import response_to, write_answer
from .request_ids import RequestIds
from .sigv4 import SignedRequest, check_claim, verify
from .web_request import BodyBudget, WebRequest

Request = OrdinaryRequest | WebRequest
Handler = Callable[[Call], Awaitable[Mapping[str, Any]]]

HEALTH_PATH: Final = "/_health"
_log = get_logger("gateways.sqs_server")


@attrs.frozen(kw_only=True)
class Access:
    """Who may ask. With secrets, whoever signs with one; without, whoever is on this machine."""

    secrets: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    allowed_hosts: frozenset[str] = frozenset()


class Exchange:
    """Answers requests of both lanes, each in a task that is cancelled when the client goes."""

    def __init__(
        self, handler: Handler, access: Access, *, clock: Clock, limits: HttpLimits, version: str
    ) -> None:
        self._handler = handler
        self._access = access
        self._clock = clock
        self._limits = limits
        self._version = version
        self._request_ids = RequestIds()
        self._bodies = BodyBudget(limits.max_buffered_bytes)
        self._is_closing = False
        self._waiting: set[asyncio.Task[Any]] = set()
        self._under_way = 0
        self._at_rest = asyncio.Event()

    async def respond(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer to one request of aiohttp's; raises only what ends the connection."""
        connection = request.protocol
        assert isinstance(connection, Connection)
        connection.begin()
        is_last = True
        try:
            answer = await self._answer(WebRequest(request, self._clock, self._limits))
            is_last = self._is_closing or not request.content.is_eof()
        finally:
            connection.end(is_last=is_last)
        return response_to(request, answer, is_last=is_last, time_s=self._clock.time_s())

    async def reply(self, request: OrdinaryRequest) -> Reply:
        """The answer to one request of the fast lane; raises only what ends the connection."""
        answer = await self._answer(request)
        is_last = self._is_closing
        return Reply(write_answer(answer, is_last=is_last, time_s=self._clock.time_s()), is_last)

    async def _answer(self, request: Request) -> Answer:
        self._under_way += 1
        try:
            return await self._serve_or_refuse(request, self._request_ids.take())
        finally:
            self._under_way -= 1
            if self._is_closing and not self._under_way:
                self._at_rest.set()

    async def _serve_or_refuse(self, request: Request, request_id: str) -> Answer:
        try:
            return await self._serve(request, request_id)
        except SqsError as error:
            refusal = error
        except StorageFailed as error:
            _log.warning(vocabulary.REQUEST_UNSTORED, error=str(error))
            refusal = service_unavailable(
                f"The server cannot write to its disk, so nothing was done: {error.detail}"
            )
        except Exception as error:  # broad: a fault in one request must not end the others
            # As text: a renderer that is given the error may print local variables, and bodies
            # are among them.
            trace = "".join(traceback.format_exception(error))
            _log.error(vocabulary.REQUEST_FAILED, request_id=request_id, traceback=trace)
            refusal = internal_failure()
        return render_error(refusal, request.headers, request_id)

    async def _serve(self, request: Request, request_id: str) -> Answer:
        if not self._access.secrets:
            refusal = refusal_of(request.headers, self._access.allowed_hosts)
            if refusal is not None:
                raise refusal
        if request.path == HEALTH_PATH:
            return self._health()
        if self._is_closing:
            raise service_unavailable("The server is closing.")
        call = await self._understand(request)
        return render(call, await self._call(call), request_id)

    async def _understand(self, request: Request) -> Call:
        if isinstance(request, OrdinaryRequest):
            return self._parse(request, request.body)
        if request.is_read:
            return self._parse(request, await request.read_body())
        # What the headers alone condemn is refused before any of its body is kept.
        if self._access.secrets:
            headers = list(request.headers.items())
            check_claim(headers, request.query, self._access.secrets)
        request.check_length()
        connection = request.connection
        assert isinstance(connection, Connection)
        connection.note_reading(True)
        try:
            async with AsyncExitStack() as held:
                await self._reserve(held, request.max_bytes)
                return self._parse(request, await request.read_body())
        finally:
            connection.note_reading(False)

    async def _reserve(self, held: AsyncExitStack, size: int) -> None:
        try:
            async with self._clock.timeout(self._limits.body_timeout_s):
                await held.enter_async_context(self._bodies.reserve(size))
        except TimeoutError:
            raise service_unavailable("Too many long requests are coming in.") from None

    def _parse(self, request: Request, body: bytes) -> Call:
        if self._access.secrets:
            self._verify(request, body)
        call = parse(request.path, request.query, request.headers, body)
        if not self._access.secrets:
            refusal = refusal_of_change(request.method, request.headers, call.operation)
            if refusal is not None:
                raise refusal
        return call

    def _health(self) -> Answer:
        status = "closing" if self._is_closing else "ok"
        body = msgspec.json.encode({"status": status, "version": self._version})
        headers = {"Content-Type": "application/json"}
        return Answer(503 if self._is_closing else 200, headers, body)

    def _verify(self, request: Request, body: bytes) -> None:
        signed = SignedRequest(
            method=request.method,
            path=request.path,
            query=request.query,
            headers=list(request.headers.items()),
            body=body,
        )
        verify(signed, self._access.secrets, self._clock.time_s())

    async def _call(self, call: Call) -> Mapping[str, Any]:
        if call.operation != "ReceiveMessage":
            return await self._handler(call)
        task = asyncio.current_task()
        assert task is not None
        self._waiting.add(task)
        try:
            return await self._handler(call)
        except asyncio.CancelledError:
            # Ours, and ours only: `drain` cut the wait short, and a poll that is over because
            # nothing came in time has an answer. A client that went away is past answering.
            if task in self._waiting or task.uncancel() > 0:
                raise
            return {}
        finally:
            self._waiting.discard(task)

    async def drain(self) -> bool:
        """Take no more requests, end the long polls, and let the others end in the grace.

        False when some did not.
        """
        self._is_closing = True
        waiting, self._waiting = self._waiting, set()
        for task in waiting:
            task.cancel()
        if not self._under_way:
            return True
        try:
            async with self._clock.timeout(self._limits.grace_s):
                await self._at_rest.wait()
        except TimeoutError:
            return False
        return True

"""Control: pausing, resuming, scaling and draining over HTTP, for programs of this machine.

| request                         | does                                     | answers           |
|---------------------------------|------------------------------------------|-------------------|
| GET /subscriptions              | nothing                                  | what /health says |
| GET /subscriptions/NAME         | nothing                                  | the subscription  |
| POST /subscriptions/NAME/pause  | receives nothing more                    | the subscription  |
| POST /subscriptions/NAME/resume | receives, or starts, again               | the subscription  |
| POST /subscriptions/NAME/drain  | finishes what it started, then stops     | the subscription  |
| POST /subscriptions/NAME/scale  | runs `{"concurrency": 20}` at once       | the subscription  |
| POST /drain                     | the same for all, and the process ends   | what /health says |

An answer tells the state right after: a drain, and a restart under way, take their time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import attrs

from ..clock import Clock
from ..dispatcher import Dispatcher
from ..errors import ConfigurationError
from ..http import guard
from ..http.server import Answering, Server
from ..http.wire import Answer, Refused, Request
from ..observability import vocabulary
from ..observability.log import get_logger
from ..performer import ControlRefused
from .options import HealthOptions
from .probes import Identity, Probes, look_at

_log = get_logger("pump.health")
MAX_CONCURRENCY: Final = 10_000
"""A slip of the finger must not have a whole queue fetched into memory."""
ACTIONS: Final = ("pause", "resume", "drain", "scale")
KNOWN: Final = "GET /subscriptions, POST /subscriptions/NAME/pause|resume|drain|scale, POST /drain"


class Control:
    """Does to a dispatcher what it is asked."""

    def __init__(self, dispatcher: Dispatcher, probes: Probes, clock: Clock) -> None:
        self._dispatcher = dispatcher
        self._probes = probes
        self._clock = clock

    def answer(self, request: Request) -> Answer:
        """Do it, and say how things are then."""
        guard.check(request)
        match request.path:
            case ("subscriptions",):
                allow(request, "GET", "HEAD")
                return Answer.of(self._probes.document())
            case ("subscriptions", name):
                allow(request, "GET", "HEAD")
                return self._subscription(name)
            case ("subscriptions", name, action) if action in ACTIONS:
                allow(request, "POST")
                return self._act(name, action, request.body)
            case ("drain",):
                allow(request, "POST")
                return self._drain_all(request.body)
            case _:
                raise Refused(HTTPStatus.NOT_FOUND, f"there is {KNOWN}")

    def _subscription(self, name: str) -> Answer:
        self._check_name(name)
        return Answer.of(look_at(self._dispatcher.performer(name), self._clock.now_s()).as_json())

    def _act(self, name: str, action: str, body: bytes) -> Answer:
        self._check_name(name)
        concurrency = concurrency_in(body) if action == "scale" else None
        if action != "scale":
            no_fields(body)
        try:
            self._do(name, action, concurrency)
        except ControlRefused as refused:
            raise Refused(HTTPStatus.CONFLICT, str(refused)) from None
        return self._subscription(name)

    def _do(self, name: str, action: str, concurrency: int | None) -> None:
        _log.info(
            vocabulary.CONTROL_ASKED,
            operation=action,
            subscription=name,
            concurrency=concurrency or self._dispatcher.performer(name).concurrency,
        )
        match action:
            case "pause":
                self._dispatcher.pause(name)
            case "resume":
                self._dispatcher.resume(name)
            case "drain":
                self._dispatcher.drain(name)
            case _:
                assert concurrency is not None
                self._dispatcher.scale(name, concurrency)

    def _drain_all(self, body: bytes) -> Answer:
        no_fields(body)
        self._dispatcher.drain()
        _log.info(vocabulary.CONTROL_ASKED, operation="drain")
        return Answer.of(self._probes.document(), HTTPStatus.ACCEPTED)

    def _check_name(self, name: str) -> None:
        try:
            self._dispatcher.performer(name)
        except ConfigurationError as error:
            raise Refused(HTTPStatus.NOT_FOUND, str(error)) from None


def allow(request: Request, *methods: str) -> None:
    """Raise `Refused` unless the request has one of these methods."""
    if request.method not in methods:
        allowed = ", ".join(methods)
        raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, f"use {allowed}", {"Allow": allowed})


def concurrency_in(body: bytes) -> int:
    """What a request to scale asks for; `Refused` when that makes no sense."""
    match _document(body):
        case {"concurrency": int(count), **rest} if not rest and not isinstance(count, bool):
            if 1 <= count <= MAX_CONCURRENCY:
                return count
            raise _unprocessable(f"concurrency is {count}; use 1 to {MAX_CONCURRENCY}")
    raise _unprocessable('send {"concurrency": N} with a whole number')


def no_fields(body: bytes) -> None:
    """Raise `Refused` when there is a body that says something."""
    if body and _document(body) != {}:
        raise _unprocessable("this takes no settings; send no body, or {}")


def _document(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise Refused(HTTPStatus.BAD_REQUEST, "the body is not JSON") from None


def _unprocessable(why: str) -> Refused:
    return Refused(HTTPStatus.UNPROCESSABLE_ENTITY, why)


# Serving: the health and the control of a dispatcher while a block runs.


@attrs.frozen(kw_only=True)
class Served:
    """Where an app can be asked; None for what is not served."""

    health: str | None = None
    """Such as `http://127.0.0.1:8080`."""
    control: str | None = None
    """Such as `http://127.0.0.1:9091`, or `unix:/run/pump.sock`."""


@asynccontextmanager
async def serving_health(
    dispatcher: Dispatcher, options: HealthOptions | None, *, gateway: str
) -> AsyncIterator[Served]:
    """Serve until the block ends, and say where; nothing is served without options.

    Enter it before the dispatcher runs, and leave it after: an app that waits for its broker, and
    one that drains, can then say so. `gateway` is shown, so it must have no secrets.
    """
    async with AsyncExitStack() as stack:
        yield Served() if options is None else await _serve(stack, dispatcher, options, gateway)


async def _serve(
    stack: AsyncExitStack, dispatcher: Dispatcher, options: HealthOptions, gateway: str
) -> Served:
    clock = dispatcher.runtime.clock
    probes = await probes_of(dispatcher, options, gateway=gateway)
    control = Control(dispatcher, probes, clock)
    return await listen(stack, options, clock, (probes.answer, control.answer))


async def probes_of(dispatcher: Dispatcher, options: HealthOptions, *, gateway: str) -> Probes:
    """Probes of a dispatcher that is about to run."""
    clock = dispatcher.runtime.clock
    identity = Identity(
        version=await asyncio.to_thread(installed_version),
        gateway=gateway,
        started_at_s=clock.now_s(),
    )
    return Probes(dispatcher, options, identity, clock)


async def listen(
    stack: AsyncExitStack,
    options: HealthOptions,
    clock: Clock,
    answering: tuple[Answering, Answering],
) -> Served:
    """Listen where the options say, probes first, control second, until the stack unwinds."""
    health = control = None
    if options.port is not None:
        server = Server(answering[0], clock, log_failure)
        stack.push_async_callback(server.aclose)
        health = await server.listen("health", options.host, options.port)
        _log.info(vocabulary.HEALTH_SERVED, address=health)
    if options.control_port is not None or options.control_socket is not None:
        server = Server(answering[1], clock, log_failure)
        stack.push_async_callback(server.aclose)
        control = await _listen_for_control(server, options)
        _log.info(vocabulary.CONTROL_SERVED, address=control)
    return Served(health=health, control=control)


async def _listen_for_control(server: Server, options: HealthOptions) -> str:
    if options.control_socket is not None:
        return await server.listen_at_path("control", options.control_socket)
    assert options.control_port is not None
    return await server.listen("control", options.control_host, options.control_port)


def installed_version() -> str:
    """The version of this distribution."""
    try:
        return version("pumphouse")
    except PackageNotFoundError:
        return "unknown"


def log_failure(request: Request, error: Exception) -> None:
    """Log a defect behind an answer; the client is told no more than that there is one."""
    _log.error(vocabulary.PROBE_FAILED, path="/".join(request.path), error=repr(error))

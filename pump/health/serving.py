"""Serving: the health and the control of a dispatcher while a block runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import PackageNotFoundError, version

import attrs

from ..clock import Clock
from ..dispatcher import Dispatcher
from ..http.server import Answering, Server
from ..http.wire import Request
from ..observability import vocabulary
from ..observability.log import get_logger
from .control import Control
from .options import HealthOptions
from .probes import Identity, Probes

_log = get_logger("pump.health")


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

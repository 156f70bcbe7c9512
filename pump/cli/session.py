"""Session: a command's hold on an app, or on a bare gateway, while it works."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..app import DEFAULT_GATEWAY, App
from ..errors import GatewayError, QueueNotFound, UnsupportedOperation
from ..exit_codes import ExitCode, Failure
from ..loading import load_app
from .log_setup import set_up_logging

_T = TypeVar("_T")


def app_for(target: str | None, gateway: str | None) -> App:
    """The app that was named, or one without subscriptions, on the gateway that was given."""
    if target is None:
        return App(gateway or DEFAULT_GATEWAY)
    app = load_app(target)
    app.override(gateway=gateway)
    return app


def shown_gateway(app: App) -> str:
    """The gateway's URL, fit for a screen."""
    return app.gateway_name


def in_session(app: App, work: Callable[[App], Awaitable[_T]]) -> _T:
    """Open the app, do the work, close it; only warnings are logged meanwhile."""
    set_up_logging("warning", "console")
    return asyncio.run(_opened(app, work))


async def _opened(app: App, work: Callable[[App], Awaitable[_T]]) -> _T:
    async with app:
        try:
            return await work(app)
        except QueueNotFound as error:
            raise await _unknown_queue(app, error) from None


async def _unknown_queue(app: App, error: QueueNotFound) -> Exception:
    try:
        names = [stats.name for stats in await app.admin.queues()]
    except (GatewayError, UnsupportedOperation):
        return error
    known = f"there are {', '.join(names)}" if names else "there are none yet"
    return Failure(
        f"queue {error.queue!r} does not exist on {shown_gateway(app)}",
        remedy=f"{known}; run the app that makes it, or `pump send {error.queue} BODY --create`",
        exit_code=ExitCode.BROKER,
    )

"""What `pump bench` measures: the options, and the app, checked before anything is opened."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path

import attrs
import click

from ..app import App
from ..bench.pacing import Load
from ..bench.pricing import Prices
from ..clock import Clock
from ..message import Message
from ..ports import Gateway
from ..stores.spill import MemorySpill
from ..subscription import Subscription
from .exit_codes import ExitCode
from .failure import Failure

_MESSAGES = 10_000
_HANDLED_MESSAGES = 1_000
"""Fewer, because each of them does to the world what handlers do."""
_FILLER = b"{" + b" " * 254 + b"}"
"""What is sent when nothing will read it."""


@attrs.frozen(kw_only=True)
class BenchOptions:
    """The options of `pump bench`."""

    target: str
    gateway: str | None = attrs.field(default=None, repr=False)
    subscription: str | None = None
    messages: int | None = None
    rate: float | None = None
    limit: timedelta = timedelta(seconds=30)
    body: str | None = attrs.field(default=None, repr=False)
    type_name: str = ""
    groups: int = 0
    handler: str | None = None
    concurrency: int | None = None
    prefetch: int | None = None
    lease: timedelta | None = None
    keeps_options: bool = False
    prices: Prices = Prices()
    is_sure: bool = False
    as_json: bool = False

    @property
    def runs_handlers(self) -> bool:
        """Whether the app's own handlers run."""
        return self.handler == "app" if self.handler else self.body is not None

    def load(self) -> Load:
        """What is sent."""
        limit_s = self.limit.total_seconds()
        if limit_s <= 0:
            raise click.UsageError("--for 0 leaves no time to measure; use 1s or more")
        default = _HANDLED_MESSAGES if self.runs_handlers else _MESSAGES
        if self.rate is not None:
            default = max(1, int(self.rate * limit_s))
        return Load(
            messages=self.messages or default, rate=self.rate, limit_s=limit_s, groups=self.groups
        )

    def payload(self) -> bytes:
        """The body of every message."""
        if self.body is None:
            if self.runs_handlers:
                raise click.UsageError(
                    "the app's handlers need something to handle; give it as --body, in the JSON "
                    "of the subscription's request"
                )
            return _FILLER
        if self.body == "-":
            return sys.stdin.buffer.read()
        if self.body.startswith("@"):
            return _contents(self.body[1:])
        return os.fsencode(self.body)

    def changed(self, subscription: Subscription) -> Subscription:
        """The subscription with the settings that are to be tried."""
        tried = {
            "concurrency": self.concurrency,
            "prefetch": self.prefetch,
            "lease": self.lease,
        }
        given = {name: value for name, value in tried.items() if value is not None}
        return attrs.evolve(subscription, **given) if given else subscription  # type: ignore[arg-type]


def chosen_subscription(app: App, options: BenchOptions) -> Subscription:
    """The one to measure, with the settings that are to be tried."""
    known = {each.name: each for each in app.subscriptions}
    if not known:
        raise Failure(
            f"{options.target} subscribes to nothing", remedy="app.subscribe(Subscription(…))"
        )
    names = ", ".join(known)
    if options.subscription is None and len(known) > 1:
        raise Failure(
            f"{options.target} has several subscriptions",
            remedy=f"name one with --subscription: {names}",
            exit_code=ExitCode.USAGE,
        )
    name = options.subscription or next(iter(known))
    if name not in known:
        raise Failure(
            f"{options.target} has no subscription {name!r}", remedy=f"there are: {names}"
        )
    return options.changed(known[name])


def idle_app(gateway: Gateway, subscription: Subscription, clock: Clock) -> App:
    """An app that takes the subscription's messages as they are, and does nothing with them: no
    handler, middleware, observer or encryption of the user's has a part in it.
    """
    app = App(gateway, spill=MemorySpill(), clock=clock)
    app.register(Message, _do_nothing)
    app.subscribe(attrs.evolve(subscription, request=Message, resolver=None))
    return app


async def _do_nothing(message: Message) -> None:
    return


def _contents(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise Failure(
            f"cannot read {path!r}: {error.strerror}",
            remedy="after @ stands a file's path",
            exit_code=ExitCode.USAGE,
        ) from None

"""`pump bench`: what an app's messages take on a gateway."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path

import attrs
import click

from ..app import App
from ..bench.measuring import Load
from ..bench.report import RequestPrices
from ..clock import Clock
from ..exit_codes import ExitCode, Failure
from ..message import Message
from ..ports import Gateway
from ..stores.spill import MemorySpill
from ..subscription import Subscription
from .options import duration, gateway_option, json_option, yes_option

_ABOVE_ZERO = click.FloatRange(min=0, min_open=True)
_PRICE = click.FloatRange(min=0)


@click.command(short_help="Measure an app on a gateway.")
@click.argument("target", metavar="MODULE:APP")
@click.option(
    "--subscription", "-s", metavar="NAME", help="Whose messages; needed when there are several."
)
@click.option(
    "--messages",
    "-n",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many to send at most. Default: 10,000; 1,000 when the app's handlers run; with "
    "--rate as many as --for has room for.",
)
@click.option(
    "--rate",
    type=_ABOVE_ZERO,
    metavar="N",
    help="Send N a second while they are handled, and so measure latency. Default: have all of "
    "them wait, and so measure throughput.",
)
@click.option(
    "--for",
    "limit",
    type=duration,
    metavar="DURATION",
    default="30s",
    help="The most that sending takes, and handling after it. Default: 30s.",
)
@click.option(
    "--body",
    metavar="JSON|@FILE|-",
    help="Send this body, and have the app's own handlers handle it.",
)
@click.option("--type", "type_name", metavar="NAME", default="", help="The messages' type.")
@click.option(
    "--groups",
    type=click.IntRange(min=0),
    metavar="N",
    default=0,
    help="Spread the messages over N ordering groups. Default: they have none.",
)
@click.option(
    "--handler",
    type=click.Choice(["app", "none"]),
    help="app runs the app's own handlers, with all they do to the world; none does nothing, and "
    "measures the pump and the gateway alone. Default: app with --body, none without.",
)
@click.option(
    "--concurrency", "-c", type=click.IntRange(min=1), metavar="N", help="Another concurrency."
)
@click.option("--prefetch", type=click.IntRange(min=0), metavar="N", help="Another prefetch.")
@click.option("--lease", type=duration, metavar="DURATION", help="Another lease.")
@click.option(
    "--keep-options",
    is_flag=True,
    help="Make the throw-away queues with the subscription's own options. Not for a queue that is "
    "subscribed to a topic or a subject: it would get what is published there.",
)
@click.option("--sqs-price", type=_PRICE, metavar="USD", help="A million requests.")
@click.option("--put-price", type=_PRICE, metavar="USD", help="A thousand PUTs.")
@click.option("--list-price", type=_PRICE, metavar="USD", help="A thousand LISTs.")
@click.option("--get-price", type=_PRICE, metavar="USD", help="A thousand GETs.")
@yes_option
@gateway_option
@json_option
def bench(
    target: str,
    *,
    subscription: str | None,
    messages: int | None,
    rate: float | None,
    limit: timedelta,
    body: str | None,
    type_name: str,
    groups: int,
    handler: str | None,
    concurrency: int | None,
    prefetch: int | None,
    lease: timedelta | None,
    keep_options: bool,
    sqs_price: float | None,
    put_price: float | None,
    list_price: float | None,
    get_price: float | None,
    yes: bool,
    gateway: str | None,
    as_json: bool,
) -> ExitCode:
    """Measure what messages take: throughput, latency, processor time, requests and dollars.

    It goes through queues of its own, made for the run and emptied after it: no real queue is
    received from, sent to or purged, not even by what handlers post through the app. Handlers do
    whatever else they do, so they run only with --body, and after a question.

    \b
    Examples:
      pump bench app:app                                   (the pump and the gateway alone)
      pump bench app:app --rate 200 --for 1m               (latency at a steady pace)
      pump bench app:app --body '{"name": "Ada"}' --yes    (with the app's own handlers)
      pump bench app:app --gateway sqs://eu-west-1 --concurrency 50
      pump bench app:app --json | jq .measured.throughput

    Ctrl-C ends it early: what runs finishes, the queues are emptied, the figures are printed.
    """
    from ..bench.report import RequestPrices
    from .bench_run import bench_app

    return bench_app(
        BenchOptions(
            target=target,
            gateway=gateway,
            subscription=subscription,
            messages=messages,
            rate=rate,
            limit=limit,
            body=body,
            type_name=type_name,
            groups=groups,
            handler=handler,
            concurrency=concurrency,
            prefetch=prefetch,
            lease=lease,
            keeps_options=keep_options,
            prices=RequestPrices.given(
                puts_1000=put_price,
                lists_1000=list_price,
                gets_1000=get_price,
                sqs_million=sqs_price,
            ),
            is_sure=yes,
            as_json=as_json,
        )
    )


# What `pump bench` measures: the options, and the app, checked before anything is opened.

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
    prices: RequestPrices = RequestPrices()
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

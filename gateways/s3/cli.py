"""`pump s3`: the gateway's own commands. An entry point names them, so that `pump` imports none."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import attrs
import click

from pump.cli.console import print_json, stdout, table
from pump.cli.options import duration, json_option
from pump.clock import format_duration

from .cost import Design, Estimate, Requests, S3Prices, Workload, estimate

_Option = Callable[[Callable[..., None]], Callable[..., None]]
_COUNT = click.IntRange(min=1)
_DOLLARS = click.FloatRange(min=0)


def _duration(name: str, default: str, help: str) -> _Option:
    return click.option(
        name,
        type=duration,
        metavar="DURATION",
        default=default,
        help=f"{help} Default: {default}.",
    )


def _count(name: str, default: int, help: str) -> _Option:
    return click.option(
        name, type=_COUNT, metavar="N", default=default, help=f"{help} Default: {default:,}."
    )


def _dollars(name: str, default: float, help: str) -> _Option:
    return click.option(
        name, type=_DOLLARS, metavar="USD", default=default, help=f"{help} Default: {default:g}."
    )


@click.group(short_help="Estimate what queues on S3 cost.")
def s3() -> None:
    """Commands for queues on S3.

    \b
    Examples:
      pump s3 cost
      pump s3 cost --layout log --consumers 100 --processes 4
    """


@s3.command(short_help="Estimate requests and dollars.")
@click.option(
    "--layout",
    type=click.Choice(["leases", "log"]),
    help="Show what this layout's requests are for. Default: compare all.",
)
@_count("--messages", 1_000_000, "Messages that are sent and consumed.")
@_count("--batch", 10, "Messages a call of post_all; 1 for post.")
@_count("--consumers", 10, "Messages handled at once, in all processes together.")
@_count("--processes", 1, "Processes that consume; each looks for messages itself.")
@_count("--receive", 10, "Messages a receive brings.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Messages a second. Default: as many as the consumers manage; then none waits.",
)
@_duration("--handler", "100ms", "How long a message is handled.")
@_duration("--lease", "30s", "The subscription's lease; it is renewed when half of it is over.")
@_duration("--latency", "30ms", "How long a request to the store takes.")
@_duration("--poll", "1s", "How often a process looks for messages while there are none.")
@_duration("--idle", "0", "How long the consumers run beside without any message.")
@_count("--body", 1_000, "Bytes of a message's body.")
@_dollars("--put-price", 0.005, "A thousand PUTs.")
@_dollars("--list-price", 0.005, "A thousand LISTs.")
@_dollars("--get-price", 0.0004, "A thousand GETs.")
@_dollars("--sqs-price", 0.40, "A million calls of SQS.")
@json_option
def cost(*, layout: str | None, as_json: bool, **options: Any) -> None:
    """Estimate what a queue on S3 asks of the store, and what that costs a million messages.

    Compares both layouts with the naive design (an object and a lease a message, a request for
    each step) and with a standard queue of SQS. S3 bills PUT and LIST alike, GET at a twelfth of
    that, also when a condition refuses the request; DELETE is free. Traffic inside a region is
    free, and storage is negligible: messages leave.

    \b
    Examples:
      pump s3 cost
      pump s3 cost --layout leases --batch 100
      pump s3 cost --layout log --consumers 100 --processes 4 --handler 2s
      pump s3 cost --messages 10000 --rate 1 --idle 22h
      pump s3 cost --json | jq .leases.dollars_a_million

    \b
    What is estimated, and what is not:
      One process sends, in calls of --batch; sends under way at once are put together and cost
      less. Messages are consumed as they come, once: retries, deferrals and dead letters cost
      more. The tests hold both layouts to counted requests: within an eighth for a process that
      has its queue to itself, within a fifth for several. Prices are list prices of us-east-1,
      without a free tier; give your region's with --put-price and the others.
    """
    from .cost import S3Prices, Workload

    prices = S3Prices(
        puts_1000=options.pop("put_price"),
        lists_1000=options.pop("list_price"),
        gets_1000=options.pop("get_price"),
        sqs_million=options.pop("sqs_price"),
    )
    workload = Workload(**_fields(options))
    if as_json:
        print_json_of(workload, prices)
    elif layout is not None:
        print_layout(layout, workload, prices)
    else:
        print_comparison(workload, prices)


def _fields(options: dict[str, Any]) -> dict[str, Any]:
    """The options as a workload calls them: durations are seconds there."""
    named = {
        f"{name}_s" if isinstance(value, timedelta) else name: value
        for name, value in options.items()
    }
    fields = {
        name: value.total_seconds() if isinstance(value, timedelta) else value
        for name, value in named.items()
    }
    fields["body_bytes"] = fields.pop("body")
    return fields


# Cost report: estimates as tables and as JSON.

_TITLES = {
    Design.LEASES: "layout leases",
    Design.LOG: "layout log",
    Design.NAIVE: "naive design",
    Design.SQS: "SQS standard",
}
_KINDS = ("PUT", "LIST", "GET", "DELETE", "SQS")
_NUMBERS = (*_KINDS, "a message", "USD a million")


def print_comparison(workload: Workload, prices: S3Prices) -> None:
    """One line a design."""
    rows = [
        (_TITLES[design], *_cells(found, found.total, prices))
        for design in Design
        for found in [estimate(design, workload)]
    ]
    _print(("requests a million messages", *_NUMBERS), rows, workload, prices)


def print_layout(layout: str, workload: Workload, prices: S3Prices) -> None:
    """One line for each thing that a layout does."""
    found = estimate(Design(layout), workload)
    rows = [(part.name, *_cells(found, part.requests, prices)) for part in found.parts]
    rows.append(("all", *_cells(found, found.total, prices)))
    _print((f"{_TITLES[found.design]}, a million messages", *_NUMBERS), rows, workload, prices)


def print_json_of(workload: Workload, prices: S3Prices) -> None:
    """Every design, as one document."""
    print_json(
        {
            "workload": attrs.asdict(workload),
            "prices": attrs.asdict(prices),
            **{design.value: _as_json(estimate(design, workload), prices) for design in Design},
        }
    )


def _print(
    head: tuple[str, ...], rows: list[tuple[str, ...]], workload: Workload, prices: S3Prices
) -> None:
    console = stdout()
    console.print(table(head, rows, right=_NUMBERS))
    said = f"{workload.messages:,} messages at {workload.pace:,.1f} a second"
    console.print(
        f"{said} take {format_duration(workload.duration_s)}. An estimate; {prices.source}."
    )


def _cells(found: Estimate, requests: Requests, prices: S3Prices) -> tuple[str, ...]:
    to_a_million = 1e6 / found.messages
    return (
        *(_number(each * to_a_million) for each in attrs.astuple(requests)),
        f"{requests.billable / found.messages:,.3f}",
        f"{requests.dollars(prices) * to_a_million:,.2f}",
    )


def _number(count: float) -> str:
    return f"{count:,.0f}" if count else ""


def _as_json(found: Estimate, prices: S3Prices) -> dict[str, Any]:
    return {
        "requests": attrs.asdict(found.total),
        "requests_a_message": found.per_message,
        "dollars": found.total.dollars(prices),
        "dollars_a_million": found.dollars_a_million(prices),
        "parts": {part.name: attrs.asdict(part.requests) for part in found.parts},
    }

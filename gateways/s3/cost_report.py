"""Cost report: estimates as tables and as JSON."""

from __future__ import annotations

from typing import Any

import attrs

from pump.cli.console import print_json, stdout, table
from pump.durations import format_duration

from .cost import Design, Estimate, Prices, Requests, Workload, estimate

_TITLES = {
    Design.LEASES: "layout leases",
    Design.LOG: "layout log",
    Design.NAIVE: "naive design",
    Design.SQS: "SQS standard",
}
_KINDS = ("PUT", "LIST", "GET", "DELETE", "SQS")
_NUMBERS = (*_KINDS, "a message", "USD a million")


def print_comparison(workload: Workload, prices: Prices) -> None:
    """One line a design."""
    rows = [
        (_TITLES[design], *_cells(found, found.total, prices))
        for design in Design
        for found in [estimate(design, workload)]
    ]
    _print(("requests a million messages", *_NUMBERS), rows, workload, prices)


def print_layout(layout: str, workload: Workload, prices: Prices) -> None:
    """One line for each thing that a layout does."""
    found = estimate(Design(layout), workload)
    rows = [(part.name, *_cells(found, part.requests, prices)) for part in found.parts]
    rows.append(("all", *_cells(found, found.total, prices)))
    _print((f"{_TITLES[found.design]}, a million messages", *_NUMBERS), rows, workload, prices)


def print_json_of(workload: Workload, prices: Prices) -> None:
    """Every design, as one document."""
    print_json(
        {
            "workload": attrs.asdict(workload),
            "prices": attrs.asdict(prices),
            **{design.value: _as_json(estimate(design, workload), prices) for design in Design},
        }
    )


def _print(
    head: tuple[str, ...], rows: list[tuple[str, ...]], workload: Workload, prices: Prices
) -> None:
    console = stdout()
    console.print(table(head, rows, right=_NUMBERS))
    said = f"{workload.messages:,} messages at {workload.pace:,.1f} a second"
    console.print(
        f"{said} take {format_duration(workload.duration_s)}. An estimate; {prices.source}."
    )


def _cells(found: Estimate, requests: Requests, prices: Prices) -> tuple[str, ...]:
    to_a_million = 1e6 / found.messages
    return (
        *(_number(each * to_a_million) for each in attrs.astuple(requests)),
        f"{requests.billable / found.messages:,.3f}",
        f"{requests.dollars(prices) * to_a_million:,.2f}",
    )


def _number(count: float) -> str:
    return f"{count:,.0f}" if count else ""


def _as_json(found: Estimate, prices: Prices) -> dict[str, Any]:
    return {
        "requests": attrs.asdict(found.total),
        "requests_a_message": found.per_message,
        "dollars": found.total.dollars(prices),
        "dollars_a_million": found.dollars_a_million(prices),
        "parts": {part.name: attrs.asdict(part.requests) for part in found.parts},
    }

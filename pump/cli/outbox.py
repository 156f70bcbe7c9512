"""`pump outbox`: what waits in an app's outbox, and what was set aside."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from .options import json_option, yes_option

if TYPE_CHECKING:
    from ..app import App
    from ..outbox import DestinationStats, Outbox, SetAside

_T = TypeVar("_T")
_ALL = "all"


@click.command(short_help="Show what waits in an app's outbox.")
@click.argument("target", metavar="MODULE:APP")
@click.option(
    "--retry",
    "retried",
    metavar="ID|all",
    multiple=True,
    help="Have the message of this id, or all that were set aside, sent again; may be repeated.",
)
@click.option(
    "--drop",
    "dropped",
    metavar="ID|all",
    multiple=True,
    help="Forget the message of this id, or all that were set aside; may be repeated.",
)
@yes_option
@json_option
def outbox(
    target: str,
    *,
    retried: tuple[str, ...],
    dropped: tuple[str, ...],
    yes: bool,
    as_json: bool,
) -> None:
    """Show what waits in the outbox of the app that MODULE:APP names, and what was set aside and
    why; or send that again, or forget it.

    A message is set aside when no attempt could send it. On a terminal --drop asks first; elsewhere
    it does nothing without --yes.

    \b
    Examples:
      pump outbox shop:app
      pump outbox shop:app --retry all
      pump outbox shop:app --drop 0a9b8c7d6e5f4a3b2c1d000000000007 --yes
    """
    if retried and dropped:
        raise click.UsageError("give --retry or --drop, one at a time")
    if dropped and not yes and not sys.stdin.isatty():
        raise click.UsageError(
            "nothing was dropped: there is no terminal to ask on; add --yes to drop it"
        )

    from ..loading import load_app
    from .session import set_up_logging

    set_up_logging("warning", "console")
    chosen = required_outbox(load_app(target))
    if dropped and not yes:
        which = "all messages that were" if _ALL in dropped else f"{len(dropped)} message(s)"
        click.confirm(f"Drop {which} set aside in {chosen.name} for good?", abort=True, err=True)
    if retried:
        count = _within(chosen, lambda it: it.retry(None if _ALL in retried else retried))
        _print_count("retried", count, as_json=as_json)
    elif dropped:
        count = _within(chosen, lambda it: it.drop(None if _ALL in dropped else dropped))
        _print_count("dropped", count, as_json=as_json)
    else:
        _print_all(chosen, as_json=as_json)


def required_outbox(app: App) -> Outbox:
    """The app's outbox; `ConfigurationError` without one."""
    from ..errors import ConfigurationError

    if app.outbox is None:
        raise ConfigurationError("App.outbox", None, "use App(outbox=PostgresOutbox(…))")
    return app.outbox


def _within(chosen: Outbox, work: Callable[[Outbox], Awaitable[_T]]) -> _T:
    from ..clock import SYSTEM_CLOCK

    async def opened() -> _T:
        await chosen.open(SYSTEM_CLOCK)
        try:
            return await work(chosen)
        finally:
            await chosen.aclose()

    return asyncio.run(opened())


def _print_count(done: str, count: int, *, as_json: bool) -> None:
    from .console import print_json, stdout

    if as_json:
        print_json({done: count})
    else:
        stdout().print(f"{done.capitalize()} {count:,} message(s).")


def _print_all(chosen: Outbox, *, as_json: bool) -> None:
    from .console import print_json

    async def look(it: Outbox) -> tuple[list[DestinationStats], list[SetAside]]:
        return list(await it.stats()), list(await it.set_aside())

    stats, set_aside = _within(chosen, look)
    if as_json:
        import attrs

        print_json(
            {
                "outbox": chosen.name,
                "destinations": [attrs.asdict(each) for each in stats],
                "set_aside": [attrs.asdict(each) for each in set_aside],
            }
        )
    else:
        _print_tables(stats, set_aside)


def _print_tables(stats: list[DestinationStats], set_aside: list[SetAside]) -> None:
    from ..clock import format_duration
    from .console import printable, stdout, table
    from .peek import age_of

    if not stats:
        stdout().print("Nothing waits.")
        return
    rows = [
        [
            printable(each.destination),
            f"{each.waiting:,}",
            "" if each.oldest_age_s is None else format_duration(each.oldest_age_s),
            f"{each.set_aside:,}",
        ]
        for each in stats
    ]
    right = ["waiting", "oldest", "set aside"]
    stdout().print(table(["destination", *right], rows, right=right))
    if set_aside:
        columns = ["id", "destination", "posted", "attempts", "set aside because"]
        rows = [
            [
                printable(each.id),
                printable(each.destination),
                age_of(each.posted_at_s),
                str(each.attempts),
                printable(each.reason),
            ]
            for each in set_aside
        ]
        stdout().print()
        stdout().print(table(columns, rows, right=["posted", "attempts"]))

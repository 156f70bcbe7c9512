"""`pump control`: what a running app is doing, and telling it to do otherwise."""

from __future__ import annotations

import click

from .options import at_option, json_option


@click.group(short_help="Pause, resume, scale or drain a running app.")
def control() -> None:
    """Look at an app that runs on this machine, and pause, resume, scale or drain it.

    The app must have been started with --control, and --at names the same port or socket; the
    variable PUMP_CONTROL does for both. Names are those of subscriptions.

    \b
    Examples:
      pump control status --at 9091
      pump control pause orders --at unix:/run/shop/pump.sock
      export PUMP_CONTROL=9091
      pump control resume orders
      pump control scale orders 50
      pump control drain orders --wait
      pump control drain --all

    Pausing keeps what is in hand: it is handled. Draining hands back what was not started. Both
    last until `resume`, and no longer than the process.

    \b
    Exit codes:
      0 done   2 wrong usage
      3 no app can be controlled there, there is no such subscription, or it has stopped for good
    """


@control.command(short_help="Show what each subscription does.")
@at_option
@json_option
def status(*, at: str | None, as_json: bool) -> None:
    """Show every subscription: its state, what it has in hand, when it last heard of the broker.

    \b
    Examples:
      pump control status
      pump control status --json | jq '.subscriptions[] | select(.state != "running")'
    """
    from .controlling import client_at, print_status

    print_status(client_at(at).status(), as_json=as_json)


@control.command(short_help="Receive nothing more, for now.")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@at_option
@json_option
def pause(names: tuple[str, ...], *, at: str | None, as_json: bool) -> None:
    """Have subscriptions receive nothing more until they are resumed.

    What is in hand is handled to its end, with its leases kept.

    \b
    Example:
      pump control pause orders invoices
    """
    _ask("pause", names, at=at, as_json=as_json)


@control.command(short_help="Receive again.")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@at_option
@json_option
def resume(names: tuple[str, ...], *, at: str | None, as_json: bool) -> None:
    """Have subscriptions receive again that were paused or drained.

    \b
    Example:
      pump control resume orders
    """
    _ask("resume", names, at=at, as_json=as_json)


@control.command(short_help="Run more, or fewer, handlers at once.")
@click.argument("name")
@click.argument("concurrency", metavar="N", type=click.IntRange(min=1))
@at_option
@json_option
def scale(name: str, concurrency: int, *, at: str | None, as_json: bool) -> None:
    """Have a subscription run N handlers at once, until the process ends.

    \b
    Example:
      pump control scale orders 50
    """
    from .controlling import client_at, print_subscriptions

    print_subscriptions([client_at(at).scale(name, concurrency)], as_json=as_json)


@control.command(short_help="Finish what was started, then stop.")
@click.argument("names", metavar="[NAME...]", nargs=-1)
@click.option(
    "--all", "is_all", is_flag=True, help="The whole app: its process ends, as by SIGTERM."
)
@click.option("--wait", is_flag=True, help="Return once nothing is left in hand.")
@at_option
@json_option
def drain(
    names: tuple[str, ...], *, is_all: bool, wait: bool, at: str | None, as_json: bool
) -> None:
    """Have subscriptions finish what they started, hand back the rest, and stop.

    The others run on, and so does the process; `resume` starts a drained one again.

    \b
    Examples:
      pump control drain orders --wait
      pump control drain --all
    """
    if is_all is bool(names):
        raise click.UsageError("name the subscriptions to drain, or use --all for the whole app")
    from .controlling import client_at, print_status

    if not is_all:
        _ask("drain", names, at=at, as_json=as_json, wait=wait)
        return
    client = client_at(at)
    print_status(client.drain_all(), as_json=as_json)
    if wait:
        client.wait_until_gone()


def _ask(
    action: str, names: tuple[str, ...], *, at: str | None, as_json: bool, wait: bool = False
) -> None:
    from .controlling import client_at, print_subscriptions

    client = client_at(at)
    found = [client.ask(name, action) for name in names]
    if wait:
        found = [client.wait_until_drained(name) for name in names]
    print_subscriptions(found, as_json=as_json)

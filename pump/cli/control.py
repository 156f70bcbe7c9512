"""`pump control`: what a running app is doing, and telling it to do otherwise."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import click
from rich.text import Text

from ..clock import format_duration
from ..exit_codes import Failure
from ..health.options import is_socket_address, parse_address, parse_socket
from .console import print_json, printable, stdout, table
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

    Pausing keeps what is in flight: it is handled. Draining hands back what was not started. Both
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
    """Show every subscription: its state, what it has in flight, when it last heard of the broker.

    \b
    Examples:
      pump control status
      pump control status --json | jq '.subscriptions[] | select(.state != "running")'
    """
    print_status(client_at(at).status(), as_json=as_json)


@control.command(short_help="Receive nothing more, for now.")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@at_option
@json_option
def pause(names: tuple[str, ...], *, at: str | None, as_json: bool) -> None:
    """Have subscriptions receive nothing more until they are resumed.

    What is in flight is handled to its end, with its leases kept.

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
    print_subscriptions([client_at(at).scale(name, concurrency)], as_json=as_json)


@control.command(short_help="Finish what was started, then stop.")
@click.argument("names", metavar="[NAME...]", nargs=-1)
@click.option(
    "--all", "is_all", is_flag=True, help="The whole app: its process ends, as by SIGTERM."
)
@click.option("--wait", is_flag=True, help="Return once nothing is left in flight.")
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
    client = client_at(at)
    found = [client.ask(name, action) for name in names]
    if wait:
        found = [client.wait_until_drained(name) for name in names]
    print_subscriptions(found, as_json=as_json)


# Controlling: the client of a running app's control endpoint, and its answers as tables.

Answered = dict[str, Any]
_TIMEOUT_S = 10.0
_LOOK_EVERY_S = 0.2
_COLUMNS = [
    *("subscription", "state", "at once", "in hand", "running", "last poll"),
    *("processed", "retried", "rejected", "restarts", "last error"),
]
_NUMBERS = [column for column in _COLUMNS if column not in ("subscription", "state", "last error")]
_STATE_STYLES = {"running": "green", "failed": "bold red", "stopped": "bold red"}


def client_at(address: str | None) -> ControlClient:
    """A client for the app at `PORT`, `HOST:PORT` or `unix:PATH`."""
    if address is None:
        raise click.UsageError(
            "which app? name what it was started with: --at PORT or --at unix:PATH, or set "
            "PUMP_CONTROL"
        )
    return ControlClient(address)


class ControlClient:
    """Asks one app; a request a connection."""

    def __init__(self, address: str) -> None:
        self._address = address

    def status(self) -> Answered:
        """Everything that is known of the app."""
        return self._send("GET", "/subscriptions")

    def ask(self, name: str, action: str) -> Answered:
        """Have a subscription do something, and return how it is then."""
        return self._send("POST", f"{_path_of(name)}/{action}")

    def scale(self, name: str, concurrency: int) -> Answered:
        """Have a subscription run so many handlers at once."""
        return self._send("POST", f"{_path_of(name)}/scale", {"concurrency": concurrency})

    def drain_all(self) -> Answered:
        """Have the whole app drain and end."""
        return self._send("POST", "/drain")

    def wait_until_drained(self, name: str) -> Answered:
        """Return once the subscription has nothing in flight any more, and how it is then."""
        while True:
            found = self._send("GET", _path_of(name))
            if found.get("state") in ("drained", "stopped"):
                return found
            _pause()

    def wait_until_gone(self) -> None:
        """Return once there is no answer any more."""
        while True:
            try:
                self._exchange("GET", "/subscriptions", None)
            except TimeoutError:
                continue  # Busy is not gone.
            except (OSError, http.client.HTTPException):
                return
            _pause()

    def _send(self, method: str, path: str, fields: object | None = None) -> Answered:
        try:
            status, body = self._exchange(method, path, fields)
            found = json.loads(body)
        except OSError as error:
            raise Failure(
                f"no app can be controlled at {self._address}: {error.strerror or error}",
                remedy="start it with `pump run MODULE:APP --control PORT` and name that port",
            ) from None
        except (http.client.HTTPException, ValueError):
            raise self._not_ours() from None
        if not isinstance(found, dict):
            raise self._not_ours()
        if status >= HTTPStatus.BAD_REQUEST:
            raise Failure(str(found.get("error", f"it answered {status}")))
        return found

    def _not_ours(self) -> Failure:
        return Failure(
            f"what answers at {self._address} is not an app's control",
            remedy="name the port or socket that `pump run --control` was given",
        )

    def _exchange(self, method: str, path: str, fields: object | None) -> tuple[int, bytes]:
        body = None if fields is None else json.dumps(fields)
        connection = self._connection()
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            reply = connection.getresponse()
            return reply.status, reply.read()
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if is_socket_address(self._address):
            return _UnixConnection(str(parse_socket(self._address)))
        host, port = parse_address("--at", self._address)
        return http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_TIMEOUT_S)
        self.sock.connect(self._path)


def print_status(found: Answered, *, as_json: bool) -> None:
    """The app in a line, its subscriptions as a table."""
    if as_json:
        print_json(found)
        return
    console = stdout()
    title = " · ".join(
        [
            f"Pumphouse {found.get('version', '?')}",
            str(found.get("gateway", "?")),
            f"up {format_duration(float(found.get('uptime_s') or 0.0))}",
            "draining" if found.get("draining") else "ready" if found.get("ready") else "not ready",
        ]
    )
    console.print(Text(printable(title), "bold"), soft_wrap=True)
    console.print(_table(found.get("subscriptions") or []))
    for reason in found.get("reasons") or []:
        console.print(Text(f"not ready: {printable(str(reason))}", "yellow"), soft_wrap=True)


def print_subscriptions(found: Sequence[Answered], *, as_json: bool) -> None:
    """Some subscriptions, as a table."""
    if as_json:
        print_json(list(found))
    else:
        stdout().print(_table(found))


def _table(subscriptions: Sequence[Answered]) -> Any:
    return table(_COLUMNS, map(_row, subscriptions), right=_NUMBERS)


def _row(found: Answered) -> list[str | Text]:
    counts = found.get("counts") or {}
    state = str(found.get("state", "?"))
    age_s = found.get("last_poll_age_s")
    return [
        printable(str(found.get("name", "?"))),
        Text(state, _STATE_STYLES.get(state, "yellow")),
        _number(found.get("concurrency")),
        _number(found.get("in_hand")),
        _number(found.get("running")),
        "never" if age_s is None else f"{format_duration(float(age_s))} ago",
        _number(counts.get("processed")),
        _number(counts.get("retried")),
        _number(counts.get("dead_lettered", 0) + counts.get("invalid", 0)),
        _number(counts.get("restarts")),
        printable(str(found.get("last_error") or "")),
    ]


def _number(count: Any) -> str:
    return f"{count:,}" if isinstance(count, int) else "?"


def _path_of(name: str) -> str:
    return f"/subscriptions/{quote(name, safe='')}"


def _pause() -> None:
    threading.Event().wait(_LOOK_EVERY_S)

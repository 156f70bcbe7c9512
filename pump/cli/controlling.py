"""Controlling: the client of a running app's control endpoint, and its answers as tables."""

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

from ..durations import format_duration
from ..health.options import is_socket_address, parse_address, parse_socket
from .console import print_json, printable, stdout, table
from .failure import Failure

Answered = dict[str, Any]
_TIMEOUT_S = 10.0
_LOOK_EVERY_S = 0.2
_COLUMNS = [
    *("subscription", "state", "at once", "in hand", "running", "last poll"),
    *("processed", "retried", "rejected", "restarts", "last error"),
]
_NUMBERS = [column for column in _COLUMNS if column not in ("subscription", "state", "last error")]
_STATE_STYLES = {"running": "green", "failed": "bold red", "stopped": "bold red"}


def client_at(address: str | None) -> Client:
    """A client for the app at `PORT`, `HOST:PORT` or `unix:PATH`."""
    if address is None:
        raise click.UsageError(
            "which app? name what it was started with: --at PORT or --at unix:PATH, or set "
            "PUMP_CONTROL"
        )
    return Client(address)


class Client:
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
        """Return once the subscription has nothing in hand any more, and how it is then."""
        while True:
            found = self._send("GET", _path_of(name))
            if found.get("state") in ("drained", "stopped"):
                return found
            _pause()

    def wait_until_gone(self) -> None:
        """Return once nobody answers any more."""
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

"""The administration of queues as Service Bus has it: ATOM over HTTP, the few calls we need."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from .entities import DEAD_LETTERS, Namespace, Queue, unix_time_s

SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
_ATOM = "http://www.w3.org/2005/Atom"
_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>[\d.]+)S)?)?$"
)
# Azure refuses settings outside of these, so the peer does.
LOCK_S = (5.0, 300.0)
WINDOW_S = (20.0, 7 * 86_400.0)
DELIVERY_COUNT = (1, 2_000)


class BadRequest(Exception):
    """The request is refused, with this status."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


def serve(namespace: Namespace, lock: Lock, port: int, strike: Callable[[str], bool]) -> Any:
    """A server on loopback; `strike` says whether a request is to be refused as too many."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None: ...

        def _answer(self, method: str) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                with lock:
                    if strike("http"):
                        raise BadRequest(503, "too many requests")
                    _authorize(self.headers.get("Authorization", ""))
                    status, text = _respond(namespace, method, self.path, body)
            except BadRequest as error:
                status, text = error.status, _error(error)
            octets = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/xml; charset=utf-8")
            self.send_header("Content-Length", str(len(octets)))
            self.end_headers()
            self.wfile.write(octets)

        def do_GET(self) -> None:
            self._answer("GET")

        def do_PUT(self) -> None:
            self._answer("PUT")

        def do_DELETE(self) -> None:
            self._answer("DELETE")

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def _authorize(token: str) -> None:
    if "skn=nobody" in token or not token:
        raise BadRequest(401, "these credentials may not manage this namespace")


def _respond(namespace: Namespace, method: str, path: str, body: bytes) -> tuple[int, str]:
    parts = urlsplit(path)
    name = unquote(parts.path).strip("/")
    if name.lower() == "$resources/queues":
        return 200, _feed(namespace, parse_qs(parts.query))
    found = namespace.find(name)
    if method == "PUT":
        if found is not None:
            raise BadRequest(409, f"entity {name!r} exists already")
        namespace.create(_queue(namespace, name, body))
        return 201, _entry(namespace, namespace.queues[name.lower()])
    if found is None:
        raise BadRequest(404, f"entity {name!r} does not exist")
    if method == "DELETE":
        namespace.delete(name)
        return 200, ""
    return 200, _entry(namespace, found)


def _queue(namespace: Namespace, name: str, body: bytes) -> Queue:
    description = ElementTree.fromstring(body).find(f".//{{{SERVICE_BUS}}}QueueDescription")
    if description is None:
        raise BadRequest(400, "no QueueDescription")
    said = {each.tag.split("}")[1]: each.text or "" for each in description}
    target = said.get("ForwardDeadLetteredMessagesTo", "").rsplit("/", 1)[-1] or None
    if target is not None and namespace.find(target) is None:
        raise BadRequest(400, f"entity {target!r}, where dead letters are to go, does not exist")
    window = None
    if said.get("RequiresDuplicateDetection") == "true":
        window = _duration(said.get("DuplicateDetectionHistoryTimeWindow", "PT10M"))
        _within("DuplicateDetectionHistoryTimeWindow", window, WINDOW_S)
    lock_s = _duration(said.get("LockDuration", "PT1M"))
    _within("LockDuration", lock_s, LOCK_S)
    count = int(said.get("MaxDeliveryCount", "10"))
    _within("MaxDeliveryCount", count, DELIVERY_COUNT)
    return Queue(
        name,
        settings=said,
        lock_s=lock_s,
        max_delivery_count=count,
        needs_session=said.get("RequiresSession") == "true",
        duplicate_window_s=window,
        forward_dead_to=target,
        created_at=unix_time_s(),
    )


def _within(name: str, value: float, limits: tuple[float, float]) -> None:
    if not limits[0] <= value <= limits[1]:
        raise BadRequest(400, f"{name} must be from {limits[0]} to {limits[1]}, not {value}")


def _duration(text: str) -> float:
    found = _DURATION.match(text)
    if found is None:
        raise BadRequest(400, f"{text!r} is no duration")
    said = {unit: float(number) for unit, number in found.groupdict(default="0").items()}
    return said["days"] * 86_400 + said["hours"] * 3_600 + said["minutes"] * 60 + said["seconds"]


def _feed(namespace: Namespace, query: dict[str, list[str]]) -> str:
    skip, top = int(query.get("$skip", ["0"])[0]), int(query.get("$top", ["100"])[0])
    names = sorted(name for name in namespace.queues if not name.endswith(DEAD_LETTERS.lower()))
    shown = [namespace.queues[name] for name in names[skip : skip + top]]
    entries = "".join(_entry(namespace, queue) for queue in shown)
    return f'<feed xmlns="{_ATOM}"><title type="text">Queues</title>{entries}</feed>'


def _entry(namespace: Namespace, queue: Queue) -> str:
    now = unix_time_s()
    scheduled = sum(each.due_at > now for each in queue.messages.values())
    dead = namespace.find(queue.name + DEAD_LETTERS)
    counts = {
        "ActiveMessageCount": len(queue.messages) - scheduled,
        "DeadLetterMessageCount": 0 if dead is None else len(dead.messages),
        "ScheduledMessageCount": scheduled,
        "TransferDeadLetterMessageCount": 0,
        "TransferMessageCount": 0,
    }
    details = "".join(
        f'<d:{name} xmlns:d="http://schemas.microsoft.com/netservices/2011/06/servicebus">{count}'
        f"</d:{name}>"
        for name, count in counts.items()
    )
    said = {
        "LockDuration": "PT1M",
        "MaxSizeInMegabytes": "1024",
        "RequiresDuplicateDetection": "false",
        "RequiresSession": "false",
        "MaxDeliveryCount": "10",
        "Status": "Active",
        **queue.settings,
    }
    at = datetime.fromtimestamp(queue.created_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    facts = "".join(f"<{name}>{escape(text)}</{name}>" for name, text in said.items())
    return (
        f'<entry xmlns="{_ATOM}"><title type="text">{escape(queue.name)}</title>'
        f'<content type="application/xml"><QueueDescription xmlns="{SERVICE_BUS}">{facts}'
        f"<SizeInBytes>0</SizeInBytes><MessageCount>{len(queue.messages)}</MessageCount>"
        f"<CreatedAt>{at}</CreatedAt><UpdatedAt>{at}</UpdatedAt><AccessedAt>{at}</AccessedAt>"
        f"<CountDetails>{details}</CountDetails></QueueDescription></content></entry>"
    )


def _error(error: BadRequest) -> str:
    return f"<Error><Code>{error.status}</Code><Detail>{escape(str(error))}</Detail></Error>"

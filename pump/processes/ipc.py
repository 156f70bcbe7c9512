"""IPC: the messages between a supervisor and one of its workers.

A pair of unnamed sockets, one end in each process: no other process can join, nothing is
left behind on the disk, and the death of either is noticed by the end of the stream.

| from the supervisor                     | means                                              |
|-----------------------------------------|----------------------------------------------------|
| `WorkerStart`, before anything else     | what to run, under which number                    |
| `{"order": "drain"}`, `"stop"`          | as the first, and the second, signal               |
| `{"id": 7, "method": …, "path": …, …}`  | a request for the probes, or for control           |
| the end                                 | the supervisor has gone: drain                     |

| from the process                        | means                                              |
|-----------------------------------------|----------------------------------------------------|
| `{"event": "attached"}`                 | it hears orders                                    |
| `{"event": "serving"}`                  | it answers requests                                |
| `{"id": 7, "status": 200, "body": …}`   | the answer                                         |
| `{"event": "ended", …}`                 | its pumps have ended, and had counted this         |

A message is four bytes, its length, and JSON.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import attrs

from ..dispatcher import Dispatcher
from ..http.wire import JSON, Answer, Request
from ..performer import DesiredState

Said = dict[str, Any]
ATTACHED = "attached"
SERVING = "serving"
ENDED = "ended"
DRAIN = "drain"
STOP = "stop"
_LENGTH = struct.Struct(">I")
# A request over the channel comes from no web page: `guard.check` is for requests by network.
_HEADERS = {"host": "localhost", "content-type": JSON}


@attrs.frozen(kw_only=True)
class WorkerStart:
    """The first message to a worker."""

    number: int
    """From 1; the process that takes the place of another has its number."""
    announces_start: bool
    """Whether it announces what runs here: one worker does, or all would."""
    options: RunOptions = attrs.field(repr=False)
    desired: DesiredStates = attrs.field(factory=dict)

    def as_message(self) -> Said:
        """For the channel: unlike a command line, it is in no list of processes.

        A supervisor may be older than its workers, so the keys stay as they are.
        """
        return {
            "number": self.number,
            "is_spokesman": self.announces_start,
            "options": attrs.asdict(self.options),
            "standing": as_json(self.desired),
        }

    @classmethod
    def of(cls, said: Said) -> WorkerStart:
        """What `as_message` made."""
        fields = said["options"]
        concurrencies = tuple((name, count) for name, count in fields.pop("concurrencies"))
        telemetry = tuple(fields.pop("telemetry"))
        return cls(
            number=said["number"],
            announces_start=said["is_spokesman"],
            options=RunOptions(concurrencies=concurrencies, telemetry=telemetry, **fields),
            desired=from_json(said["standing"]),
        )


class IpcChannel:
    """One end of it, on the event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, end: socket.socket) -> IpcChannel:
        """Talk over this end, which is ours from now on."""
        end.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=end)
        # So that `flush` means that all of it has been taken.
        writer.transport.set_write_buffer_limits(high=0)
        return cls(reader, writer)

    def say(self, said: Mapping[str, Any]) -> None:
        """Send it soon; dropped once the other end has gone."""
        if not self._writer.is_closing():
            self._writer.write(encode(said))

    async def flush(self) -> None:
        """Return once all messages have left, or the other end has gone."""
        try:
            await self._writer.drain()
        except OSError:
            return

    async def hear(self) -> Said | None:
        """The next message; None when the other end has gone."""
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            said: Said = json.loads(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, OSError):
            return None
        return said

    def close(self) -> None:
        """Go."""
        self._writer.close()


def encode(said: Mapping[str, Any]) -> bytes:
    """A message as it is sent."""
    body = json.dumps(said).encode()
    return _LENGTH.pack(len(body)) + body


def hear_at_once(end: socket.socket) -> Said | None:
    """The first message, before there is an event loop; blocks. None when the other end is gone."""
    head = _read(end, _LENGTH.size)
    body = None if head is None else _read(end, *_LENGTH.unpack(head))
    if body is None:
        return None
    said: Said = json.loads(body)
    return said


def _read(end: socket.socket, length: int) -> bytes | None:
    found = b""
    while len(found) < length:
        part = end.recv(length - len(found))
        if not part:
            return None
        found += part
    return found


def request_said(id: int, request: Request) -> Said:
    """A request, as it is said."""
    body = request.body.decode("utf-8", "replace")
    return {"id": id, "method": request.method, "path": list(request.path), "body": body}


def request_heard(said: Said) -> Request:
    """The request that was said."""
    return Request(
        method=said["method"],
        path=tuple(said["path"]),
        headers=_HEADERS,
        body=said["body"].encode(),
    )


def answer_said(id: int, answer: Answer) -> Said:
    """An answer, as it is said."""
    return {
        "id": id,
        "status": answer.status.value,
        "content_type": answer.content_type,
        "body": answer.body.decode("utf-8", "replace"),
    }


def answer_heard(said: Said) -> Answer:
    """The answer that was said."""
    return Answer(
        status=HTTPStatus(said["status"]),
        content_type=said["content_type"],
        body=said["body"].encode(),
    )


# Run options: those of `pump run`, and the command line they make.


@attrs.frozen(kw_only=True)
class RunOptions:
    """The options of `pump run`."""

    target: str
    gateway: str | None = attrs.field(default=None, repr=False)
    concurrencies: tuple[tuple[str, int], ...] = ()
    until_empty: bool = False
    health: str | None = None
    control: str | None = None
    telemetry: tuple[str, ...] = ()
    ledger: str | None = None
    log_level: str = "info"
    log_format: str = "auto"
    log_sample: int = 1

    def arguments(self) -> list[str]:
        """The options as a command line, for a process of its own."""
        return [
            "run",
            self.target,
            *(() if self.gateway is None else ("--gateway", self.gateway)),
            *(f"--concurrency={name}={count}" for name, count in self.concurrencies),
            *(("--until-empty",) if self.until_empty else ()),
            *(() if self.health is None else (f"--health={self.health}",)),
            *(() if self.control is None else (f"--control={self.control}",)),
            *(f"--telemetry={each}" for each in self.telemetry),
            *(() if self.ledger is None else (f"--ledger={self.ledger}",)),
            f"--log-level={self.log_level}",
            f"--log-format={self.log_format}",
            f"--log-sample={self.log_sample}",
        ]


# Desired states: what was asked of subscriptions, for workers that start later.

_ASKED = {"pause": DesiredState.PAUSE, "drain": DesiredState.DRAIN, "resume": DesiredState.RUN}


@attrs.frozen(kw_only=True)
class Order:
    """What one subscription is to do, as a performer would have it after the same words."""

    asked: DesiredState = DesiredState.RUN
    concurrency: int | None = None
    """None for what the app says."""

    def after(self, action: str, concurrency: int | None) -> Order:
        """What is to be done once this was asked as well."""
        if action == "scale":
            return attrs.evolve(self, concurrency=concurrency)
        if action == "pause" and self.asked is DesiredState.DRAIN:
            return self  # As `Performer.ask` has it: a drain hands back more than a pause would.
        return attrs.evolve(self, asked=_ASKED[action])


DesiredStates = Mapping[str, Order]
"""By subscription."""
UNASKED = Order()


def as_json(desired: DesiredStates) -> dict[str, dict[str, Any]]:
    """For a process to come."""
    return {name: attrs.asdict(order) for name, order in desired.items()}


def from_json(found: Mapping[str, Mapping[str, Any]]) -> DesiredStates:
    """What `as_json` made."""
    return {
        name: Order(asked=DesiredState(each["asked"]), concurrency=each["concurrency"])
        for name, each in found.items()
    }


def obey(desired: DesiredStates, dispatcher: Dispatcher) -> None:
    """Have a dispatcher that does not run yet do what was asked of others before it.

    A subscription that this version of the app does not have is passed over.
    """
    for performer in dispatcher.performers:
        order = desired.get(performer.subscription.name, UNASKED)
        performer.ask(order.asked)
        if order.concurrency is not None:
            performer.concurrency = order.concurrency

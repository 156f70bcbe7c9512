"""`pump run --processes N`, followed by the events of its log."""

import json
import os
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pump.clock import SYSTEM_CLOCK

from .programs import PATIENCE_S, Program, running

Event = dict[str, Any]


class WorkerGroup:
    """A supervisor and its processes; what they log is read in its order."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.events: list[Event] = []

    def until(self, name: str, count: int = 1, **fields: object) -> list[Event]:
        """The next so many events of that name, and with these fields."""
        found: list[Event] = []
        while len(found) < count:
            line = self.program.err.wait_for(f'"event":"{name}"')
            event = json.loads(line)
            if all(event.get(key) == value for key, value in fields.items()):
                found.append(event)
        return found

    def ready(self, count: int) -> dict[int, int]:
        """The process ids, by number, of the next so many processes that are ready."""
        return {event["process"]: event["pid"] for event in self.until("process.ready", count)}

    def address(self, event: str = "health.served") -> str:
        """Where it is served."""
        return str(self.until(event)[0]["address"])

    def all_events(self) -> list[Event]:
        """Everything that was logged, once every process has ended: then nobody holds stderr."""
        return [json.loads(line) for line in self.program.err.rest() if line.startswith("{")]

    def plain_lines(self) -> list[str]:
        """What was printed to stderr beside the log."""
        return [line for line in self.program.err.rest() if not line.startswith("{")]

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.program.signal(number)

    def end(self) -> int:
        """Drain it, and return its exit code once every process has gone."""
        self.signal()
        return self.wait()

    def wait(self) -> int:
        """Its exit code, once every process has gone, and nothing is left of any."""
        code = self.program.wait()
        self.program.err.rest()
        return code

    def handled(self) -> list[str]:
        """What handlers printed, once all have ended."""
        return self.program.out.rest()


@contextmanager
def workers_of(
    count: int, folder: Path, *arguments: str, env: Mapping[str, str] | None = None
) -> Iterator[WorkerGroup]:
    """`app:app` in so many processes; whoever is left at the end is killed."""
    command = ("run", "app:app", f"--processes={count}", "--log-format=json", *arguments)
    with running(*command, folder=folder, env=env) as program:
        workers = WorkerGroup(program)
        try:
            yield workers
        finally:
            if program.process.poll() is None:
                program.process.kill()  # The others end when they notice.


def get(url: str) -> tuple[int, Any]:
    """Status and document."""
    try:
        with urllib.request.urlopen(url, timeout=30) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def until(ask: Callable[[], tuple[int, Any]], is_fit: Callable[[int, Any], bool]) -> Any:
    """The first document that fits: on a busy machine a process may be too late for one probe."""
    end_s = SYSTEM_CLOCK.now_s() + PATIENCE_S
    while True:
        status, found = ask()
        if is_fit(status, found):
            return found
        assert SYSTEM_CLOCK.now_s() < end_s, (status, found)
        threading.Event().wait(0.1)


def until_status(url: str, status: int) -> Any:
    """The document that comes with this status, once it does."""
    return until(lambda: get(url), lambda found, _: found == status)


def text_at(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as reply:
        return str(reply.read(), "utf-8")


def post(url: str, body: object = None) -> tuple[int, Any]:
    """The same, having something done."""
    data = b"" if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)

"""A fork server: imports a module once, and then forks a child for each life that it is told of.

python -m tests.kill.fork_server MODULE ORDER

A new interpreter takes a second until it has imported everything, a fork some milliseconds. First
it runs `MODULE.warm_up`, so that children find what a first use makes. Then a line of stdin is
JSON: `{"number": 7, …}` has a child run `MODULE.live` with it, `{"kill": 7}` kills that child,
which only this process is sure not to mistake for another. It says `7 STATUS` of each that died.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import attrs

ROOT = Path(__file__).resolve().parents[2]


@attrs.frozen
class Death:
    """The end of a life: negative the signal that ended it, as of `subprocess`."""

    number: int
    status: int


class ForkServer:
    """The process, seen from the one that started it."""

    def __init__(self, module: str, errors: Path, order: dict[str, Any]) -> None:
        self._module = module
        self._order = order
        self._errors = errors
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""

    def __enter__(self) -> Self:
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, self._module, json.dumps(self._order)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                bufsize=0,
            )
        self.deaths()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        # At the end of its stdin it kills its children.
        self._process.communicate()

    def fileno(self) -> int:
        """Where deaths are heard of."""
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def fork(self, number: int, order: dict[str, Any]) -> None:
        """Begin a life."""
        self._tell({"number": number, **order})

    def kill(self, number: int) -> None:
        """`kill -9`; nothing happens where it is dead already."""
        self._tell({"kill": number})

    def deaths(self) -> list[Death]:
        """Those that were told of and not read yet; waits for one."""
        found = os.read(self.fileno(), 65_536)
        assert found, f"the fork server died: {self._errors.read_text()}"
        *lines, self._unread = (self._unread + found).split(b"\n")
        return [Death(*map(int, line.split())) for line in lines]

    def _tell(self, what: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what).encode() + b"\n")


class _Forks:
    """The process itself."""

    def __init__(self, live: Callable[[dict[str, Any]], None]) -> None:
        self._live = live
        self._processes: dict[int, int] = {}
        self._numbers: dict[int, int] = {}

    def run(self) -> None:
        wake, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poll, unread = select.poll(), b""
        poll.register(0, select.POLLIN)
        poll.register(wake, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            if wake in ready:
                os.read(wake, 4_096)
                self._reap()
            if 0 in ready:
                found = os.read(0, 65_536)
                if not found:
                    break
                *lines, unread = (unread + found).split(b"\n")
                for line in lines:
                    self._obey(json.loads(line))
        for process in self._numbers:
            os.kill(process, signal.SIGKILL)

    def _obey(self, what: dict[str, Any]) -> None:
        if "kill" in what:
            process = self._processes.get(what["kill"])
            # Not reaped yet, so the number is still its own.
            if process is not None:
                os.kill(process, signal.SIGKILL)
            return
        process = os.fork()
        if not process:
            self._become(what)
        self._processes[what["number"]] = process
        self._numbers[process] = what["number"]

    def _become(self, order: dict[str, Any]) -> None:
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            nothing = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nothing, 0)
            os.dup2(2, 1)
            self._live(order)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            # Not the cleaning up of the parent's.
            os._exit(status)

    def _reap(self) -> None:
        while self._numbers:
            process, status = os.waitpid(-1, os.WNOHANG)
            if not process:
                return
            number = self._numbers.pop(process)
            del self._processes[number]
            os.write(1, f"{number} {os.waitstatus_to_exitcode(status)}\n".encode())


def main() -> None:
    module = import_module(sys.argv[1])
    module.warm_up(json.loads(sys.argv[2]))
    os.write(1, b"0 0\n")
    gc.collect()
    # Or the collector would touch, and so copy, the parent's pages in every child.
    gc.freeze()
    _Forks(module.live).run()


if __name__ == "__main__":
    main()

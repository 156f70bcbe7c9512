"""moto's server as a child process: a second S3 that honours conditions, in an environment of its
own (`make .venv-moto/.ready`).
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_ROOT = Path(__file__).resolve().parents[2]
PYTHON = _ROOT / ".venv-moto" / "bin" / "python"
_LAUNCHER = Path(__file__).with_name("launch_moto.py")
_STOP_TIMEOUT_S = 10.0


class MotoMissing(Exception):
    """Its environment is not installed; the message says how."""


class Moto:
    """A server that answers, at `url`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.url = self._answer()
        if not self.url:
            raise MotoMissing("moto ended before it said where it listens")
        self.ahead_s = 0.0
        """How much later it is there than here."""

    def travel(self, seconds: float) -> None:
        """Date the replies from now on as if so much time had passed."""
        print(repr(seconds), file=_pipe(self._process.stdin), flush=True)
        self._answer()
        self.ahead_s += seconds

    def _answer(self) -> str:
        return _pipe(self._process.stdout).readline().strip()


@contextmanager
def moto_server() -> Iterator[Moto]:
    """A server that lives as long as the block."""
    if not PYTHON.exists():
        raise MotoMissing(f"{PYTHON.relative_to(_ROOT)} is missing: run `make test-brokers`")
    with subprocess.Popen(
        [str(PYTHON), "-P", str(_LAUNCHER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Moto(process)
        finally:
            process.terminate()
            process.wait(_STOP_TIMEOUT_S)


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe

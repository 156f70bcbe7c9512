"""The peer as a child process: started in a moment, told what to break, gone with its owner."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / ".venv-servicebus-peer" / "bin" / "python"
STOP_TIMEOUT_S = 10.0


class PeerFailed(Exception):
    """The peer did not start; the message says why."""


class ServiceBusPeer:
    """A peer that answers."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.ahead_s = 0.0
        """How much later it is there than here."""
        ports = self._answer()
        self.amqp_port: int = ports["amqp"]
        self.http_port: int = ports["http"]

    def connection_string(self, *, port: int | None = None, key_name: str = "peer") -> str:
        """What the SDK is given; through another port, such as that of a proxy."""
        return (
            f"Endpoint=sb://127.0.0.1:{port or self.amqp_port};SharedAccessKeyName={key_name};"
            f"SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true;"
        )

    @property
    def url(self) -> str:
        """The gateway's URL of it."""
        return (
            f"sb://peer:c2VjcmV0@127.0.0.1:{self.amqp_port}?emulator=true&admin_port="
            f"{self.http_port}"
        )

    def throttle(self, operation: str, count: int) -> None:
        """Refuse the next requests of this kind, as busy: send, renew-lock, http …"""
        self._ask({"do": "throttle", "operation": operation, "count": count})

    def lose(self, operation: str, count: int) -> None:
        """Perform the next requests of this kind, and hang up instead of answering."""
        self._ask({"do": "lose", "operation": operation, "count": count})

    def settle_in_part(self) -> None:
        """From now on a lost lock keeps none of its request but itself from being settled."""
        self._ask({"do": "settle_in_part"})

    def expire_locks(self) -> None:
        """End every lock of messages and sessions."""
        self._ask({"do": "expire_locks"})

    def travel(self, seconds: float) -> None:
        """Let so much time pass there, and what is due be done."""
        self._ask({"do": "travel", "seconds": seconds})
        self.ahead_s += seconds

    def counts(self) -> dict[str, int]:
        """How often each operation was asked for."""
        return {str(name): int(count) for name, count in self._ask({"do": "counts"}).items()}

    def delete(self, part: str) -> None:
        """Remove the queues with this in their names, and what is in them."""
        self._ask({"do": "delete", "part": part.lower()})

    def _ask(self, command: dict[str, object]) -> dict[str, Any]:
        print(json.dumps(command), file=_pipe(self._process.stdin), flush=True)
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        line = _pipe(self._process.stdout).readline()
        if not line:
            raise PeerFailed(f"the peer has ended with {self._process.wait(STOP_TIMEOUT_S)}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerFailed(str(answer["error"]))
        return answer


@contextmanager
def servicebus_peer() -> Iterator[ServiceBusPeer]:
    """A peer of one's own, gone at the end of the block."""
    if not PYTHON.exists():
        raise PeerFailed(
            f"the peer's environment is not installed ({PYTHON.relative_to(ROOT)} is missing): "
            "run `make test-brokers`, which installs it"
        )
    process = subprocess.Popen(
        [PYTHON, "-m", __package__ or ""],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield ServiceBusPeer(process)
    finally:
        # It ends with its standard input.
        _pipe(process.stdin).close()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_TIMEOUT_S)
        _pipe(process.stdout).close()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe
